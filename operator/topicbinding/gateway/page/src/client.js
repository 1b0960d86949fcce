// TopicBinding's browser client: live tables that survive every swap. An ES module without a build step:
//
//   import { Gateway } from "https://gateway.example/client.js";
//   const table = new Gateway("https://gateway.example", { token }).binding("shop", "orders").getTable("final_ui");
//   table.onUpdate(({ changed }) => render(table.rows));
//   table.onSwap(({ from, to }) => console.log(`generation ${from} -> ${to}`));
//   table.onState(({ state, reason }) => badge(state, reason));
//
// A stream that breaks is opened again where it was; the rows stay meanwhile, and their state says that they are not live.

const SILENCE_MS = 7000; // the gateway sends a heartbeat every two seconds
const FIRST_PAUSE_MS = 150;
const LONGEST_PAUSE_MS = 5000;
const SUBPROTOCOL = "v1.topicbinding.dev";
const TOKEN_SUBPROTOCOL = "base64url.bearer.authorization.topicbinding.dev.";

export class GatewayError extends Error {
    constructor(status, message) {
        super(message);
        this.status = status;
    }
}

export class Gateway {
    /** `token`: a Kubernetes bearer token, or a function that returns one; a gateway with open access needs none. */
    constructor(url = location.origin, { token = null } = {}) {
        this.url = url.replace(/\/$/, "");
        this._token = typeof token === "function" ? token : () => token;
    }

    session() {
        return this.get("/v1/session");
    }

    async bindings() {
        return (await this.get("/v1/bindings")).bindings;
    }

    /** Calls back with the list of bindings whenever it changes; returns a function that stops it. */
    watchBindings(callback, onTrouble = () => {}) {
        return this.#watch("/v1/bindings/stream", callback, onTrouble);
    }

    binding(namespace, name) {
        return new Binding(this, namespace, name);
    }

    async get(path) {
        const answer = await this.fetch(path);
        return answer.json();
    }

    async fetch(path, options = {}) {
        const token = this._token();
        const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
        const answer = await fetch(this.url + path, { ...options, headers });
        if (!answer.ok) {
            const body = await answer.json().catch(() => ({}));
            throw new GatewayError(answer.status, body.error ?? answer.statusText);
        }
        return answer;
    }

    openSocket(path) {
        const token = this._token();
        const protocols = [SUBPROTOCOL];
        if (token) {
            const bytes = new TextEncoder().encode(token);
            const text = btoa(String.fromCharCode(...bytes));
            protocols.push(TOKEN_SUBPROTOCOL + text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", ""));
        }
        return new WebSocket(this.url.replace(/^http/, "ws") + path, protocols);
    }

    // Server-sent events over fetch, because EventSource cannot carry a token.
    #watch(path, callback, onTrouble) {
        let stopped = false;
        let controller = null;
        const run = async () => {
            let pause = FIRST_PAUSE_MS;
            while (!stopped) {
                controller = new AbortController();
                let alarm = 0;
                const listen = () => {
                    clearTimeout(alarm);
                    alarm = setTimeout(() => controller.abort(), SILENCE_MS);
                };
                try {
                    listen();
                    const answer = await this.fetch(path, { signal: controller.signal });
                    for await (const document of documents(answer.body, listen)) {
                        pause = FIRST_PAUSE_MS;
                        callback(document);
                    }
                    onTrouble(new GatewayError(0, "the gateway closed the stream"));
                } catch (error) {
                    if (!stopped) onTrouble(error);
                }
                clearTimeout(alarm);
                if (!stopped) await sleep(pause);
                pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
            }
        };
        run();
        return () => {
            stopped = true;
            controller?.abort();
        };
    }

    _watchBinding(path, callback, onTrouble) {
        return this.#watch(path, callback, onTrouble);
    }
}

export class Binding {
    constructor(gateway, namespace, name) {
        this.gateway = gateway;
        this.namespace = namespace;
        this.name = name;
        this.path = `/v1/bindings/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
    }

    get() {
        return this.gateway.get(this.path);
    }

    /** Calls back with the binding, its generations and conditions whenever they change. */
    watch(callback, onTrouble = () => {}) {
        return this.gateway._watchBinding(`${this.path}/stream`, callback, onTrouble);
    }

    /** Rows now: `columns`, `where`, `order`, `offset`, `limit`, `generation`. */
    query(table, parameters = {}) {
        return this.gateway.get(`${this.path}/tables/${encodeURIComponent(table)}?${new URLSearchParams(parameters)}`);
    }

    /** A live table. With `arrow: true` updates carry Arrow bytes (for engines that read them) instead of rows. */
    getTable(name, { generation = null, arrow = false } = {}) {
        return new LiveTable(this, name, generation, arrow);
    }
}

export class LiveTable {
    #byRow = new Map();
    #sorted = null;
    #parts = [];
    #listeners = { update: new Set(), swap: new Set(), state: new Set(), frame: new Set() };
    #socket = null;
    #closed = false;
    #pause = FIRST_PAUSE_MS;
    #alarm = 0;

    constructor(binding, name, generation, arrow) {
        this.binding = binding;
        this.name = name;
        this.generation = null;
        this.epoch = null;
        this.seq = null;
        this.state = { state: "lost", reason: "not connected yet", ageMs: null };
        this.pinned = generation;
        this.arrow = arrow;
        this.connections = 0;
        this.swaps = 0;
        this.#open();
    }

    /** All rows in order of arrival (not kept in arrow mode). */
    get rows() {
        this.#sorted ??= [...this.#byRow.keys()].sort((a, b) => a - b).map((row) => this.#byRow.get(row));
        return this.#sorted;
    }

    /** `{kind: "snapshot" | "swap" | "delta", changed, arrow, header}`; returns a function that stops it. */
    onUpdate(callback) {
        return this.#listen("update", callback);
    }

    /** `{from, to}`: all rows come from another generation now. */
    onSwap(callback) {
        return this.#listen("swap", callback);
    }

    /** `{state, reason, ageMs, generation, sources}`; `lost` while the gateway cannot be reached. */
    onState(callback) {
        const stop = this.#listen("state", callback);
        callback(this.state);
        return stop;
    }

    /** Every header as it arrives, heartbeats too. */
    onFrame(callback) {
        return this.#listen("frame", callback);
    }

    close() {
        this.#closed = true;
        clearTimeout(this.#alarm);
        this.#socket?.close();
    }

    #listen(kind, callback) {
        this.#listeners[kind].add(callback);
        return () => this.#listeners[kind].delete(callback);
    }

    #tell(kind, event) {
        for (const callback of this.#listeners[kind]) {
            try {
                callback(event);
            } catch (error) {
                console.error(error);
            }
        }
    }

    #open() {
        const query = new URLSearchParams({ format: this.arrow ? "arrow" : "json" });
        if (this.pinned !== null) query.set("generation", this.pinned);
        if (this.epoch !== null) query.set("resume", `${this.generation}:${this.epoch}:${this.seq}`);
        const path = `${this.binding.path}/tables/${encodeURIComponent(this.name)}/stream?${query}`;
        const socket = this.binding.gateway.openSocket(path);
        socket.binaryType = "arraybuffer";
        this.#socket = socket;
        this.#parts = [];
        socket.onopen = () => {
            this.connections += 1;
            this.#heard();
        };
        socket.onmessage = ({ data }) => {
            this.#heard();
            try {
                const { header, body } = typeof data === "string" ? readJson(data) : readFrame(data);
                this.#take(header, body);
            } catch (error) {
                console.error(error);
                this.epoch = null; // begin anew rather than show rows that may be wrong
                socket.close();
            }
        };
        socket.onclose = ({ reason }) => {
            if (socket !== this.#socket || this.#closed) return;
            clearTimeout(this.#alarm);
            this.#say({ ...this.state, state: "lost", reason: reason || "the gateway cannot be reached" });
            setTimeout(() => this.#closed || this.#open(), this.#pause * (0.7 + 0.3 * Math.random()));
            this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
        };
        this.#heard();
    }

    #heard() {
        clearTimeout(this.#alarm);
        this.#alarm = setTimeout(() => this.#socket?.close(), SILENCE_MS);
    }

    #take(header, body) {
        this.#pause = FIRST_PAUSE_MS;
        switch (header.type) {
            case "snapshot":
            case "swap":
                this.#whole(header, body);
                break;
            case "delta":
                this.#at(header);
                this.#put(body);
                this.#tell("update", { kind: "delta", header, ...this.#given(body) });
                break;
            case "state":
            case "heartbeat":
                this.#say({
                    state: header.state,
                    reason: header.reason ?? "",
                    ageMs: header.ageMs,
                    generation: header.generation,
                    sources: header.sources ?? this.state.sources,
                });
        }
        this.#tell("frame", header);
    }

    // Nothing changes before the last part: the rows of two generations are never seen together.
    #whole(header, body) {
        if (header.part === 1) this.#parts = [];
        this.#parts.push(body);
        if (header.part !== this.#parts.length) throw new Error("a part of a snapshot is missing");
        if (header.part < header.parts) return;
        const parts = this.#parts;
        this.#parts = [];
        const from = this.generation;
        this.#at(header);
        this.#byRow.clear();
        for (const part of parts) this.#put(part);
        const whole = this.arrow ? joinArrow(parts) : parts.flat();
        if (header.type === "swap" && from !== header.generation) {
            this.swaps += 1;
            this.#tell("swap", { from: header.from, to: header.to });
        }
        this.#tell("update", { kind: header.type, header, ...this.#given(whole) });
    }

    #given(body) {
        return this.arrow ? { arrow: body } : { changed: body };
    }

    #put(rows) {
        if (this.arrow) return;
        this.#sorted = null;
        for (const row of rows) this.#byRow.set(row._row, row);
    }

    #at(header) {
        this.generation = header.generation;
        this.epoch = header.epoch;
        this.seq = header.seq;
    }

    #say(state) {
        const before = this.state;
        this.state = state;
        if (before.state !== state.state || before.reason !== state.reason || before.generation !== state.generation) {
            this.#tell("state", state);
        }
    }
}

/** A binary frame: four bytes of length, a JSON header, an Arrow stream. */
function readFrame(buffer) {
    const length = new DataView(buffer).getUint32(0);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    return { header, body: new Uint8Array(buffer, 4 + length) };
}

function readJson(text) {
    const { data, ...header } = JSON.parse(text);
    return { header, body: data ?? [] };
}

/**
 * Several Arrow streams of one schema as one. A stream is a schema message, batches, and an end mark; each message starts
 * with 0xFFFFFFFF and the length of its metadata, and a schema message has no body. So the later streams lose their first
 * message, and all but the last their end mark.
 */
export function joinArrow(streams) {
    if (streams.length === 1) return streams[0];
    const pieces = streams.map((stream, index) => {
        const view = new DataView(stream.buffer, stream.byteOffset, stream.byteLength);
        const start = index === 0 ? 0 : 8 + view.getInt32(4, true);
        const marked = view.getInt32(stream.byteLength - 8, true) === -1 && view.getInt32(stream.byteLength - 4, true) === 0;
        const end = index === streams.length - 1 || !marked ? stream.byteLength : stream.byteLength - 8;
        return stream.subarray(start, end);
    });
    const whole = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
    let at = 0;
    for (const piece of pieces) {
        whole.set(piece, at);
        at += piece.length;
    }
    return whole;
}

async function* documents(body, heard) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
        for (;;) {
            const { done, value } = await reader.read();
            if (done) return;
            heard();
            rest += value;
            const events = rest.split("\n\n");
            rest = events.pop();
            for (const event of events) {
                const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
                if (data.length) yield JSON.parse(data.join("\n"));
            }
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}

function sleep(ms) {
    return new Promise((resolve) => setTimeout(resolve, ms));
}
