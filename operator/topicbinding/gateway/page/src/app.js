// The page: which binding and table are shown (the URL says it), and who is told when something changes.
import { Charts } from "./charts.js";
import { Gateway, GatewayError } from "./client.js";
import { byId, count, duration, h, show } from "./dom.js";
import { Grid } from "./grid.js";
import * as panels from "./panels.js";
import * as theme from "./theme.js";

const TABLES = [
    ["final_ui", "joined"],
    ["users_ui", "users"],
    ["accounts_ui", "accounts"],
];
const PANELS = [
    ["table", "Table"],
    ["charts", "Charts"],
    ["generations", "Generations"],
    ["control", "Control"],
    ["logs", "Logs"],
];
const TOKEN_KEY = "topicbinding.token";

class Page {
    constructor() {
        this.gateway = new Gateway(location.origin, { token: () => sessionStorage.getItem(TOKEN_KEY) });
        this.list = [];
        this.shown = null; // {namespace, name, table}
        this.drawn = null; // the generation whose rows the grid shows
        this.view = null;
        this.detail = null;
        this.live = { state: "lost", reason: "" };
        this.offset = Infinity; // how far this clock is ahead of the gateway's, at least
        this.rates = [];
        this.stops = [];
        this.heard = 0;
        this.grid = new Grid(
            byId("grid"),
            (view) => this.keepView(view),
            () => this.detail?.tables.final_ui?.[0]?.name, // the key comes first there
        );
        this.charts = new Charts();
    }

    async start() {
        this.buttons();
        await Promise.all([this.grid.start(), this.signIn()]);
        this.gateway.watchBindings(
            (answer) => {
                byId("link").textContent = answer.watchDownSeconds > 2 ? "the API server cannot be reached" : "";
                this.list = answer.bindings;
                this.route();
                this.render();
            },
            (error) => this.trouble(error),
        );
        addEventListener("hashchange", () => this.route());
        setInterval(() => this.render(), 250);
        setInterval(() => this.topKeys(), 2000);
        this.route();
    }

    async signIn() {
        let session;
        try {
            session = await this.gateway.session();
        } catch (error) {
            if (!(error instanceof GatewayError) || error.status !== 401) throw error;
            sessionStorage.removeItem(TOKEN_KEY);
            byId("login-error").textContent = error.message;
            session = await this.gateway.session();
        }
        if (session.access === "open") {
            const note = byId("access");
            note.hidden = false;
            note.textContent = "open access: this machine only";
            note.title = "Nobody is asked for a token. Fine for a local cluster, for nothing else.";
        }
        if (session.user === null) {
            byId("login").hidden = false;
            await new Promise((resolve) => {
                byId("login-form").onsubmit = (event) => {
                    event.preventDefault();
                    sessionStorage.setItem(TOKEN_KEY, byId("token").value.trim());
                    resolve();
                };
            });
            byId("login").hidden = true;
            await this.signIn();
        }
    }

    trouble(error) {
        if (error instanceof GatewayError && error.status === 401) {
            sessionStorage.removeItem(TOKEN_KEY);
            location.reload();
        }
        byId("link").textContent = "connection to the gateway lost, trying again";
    }

    // -- the URL: #/namespace/name/table?view=…&q=…

    route() {
        const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
        const [namespace, name, table] = path.split("/").map(decodeURIComponent);
        const parameters = new URLSearchParams(query ?? "");
        if (!namespace || !name) {
            const first = this.list[0];
            byId("empty").hidden = Boolean(first) || !byId("login").hidden;
            show(byId("empty"), h("h1", {}, "No bindings yet"), h("p", {}, "Apply a TopicBinding and it appears here by itself."));
            if (first) location.replace(`#/${encodeURIComponent(first.namespace)}/${encodeURIComponent(first.name)}/final_ui`);
            return;
        }
        const wanted = { namespace, name, table: TABLES.some(([each]) => each === table) ? table : "final_ui" };
        const same = this.shown && this.shown.namespace === namespace && this.shown.name === name;
        if (same && this.shown.table === wanted.table) return;
        byId("empty").hidden = true;
        this.closeMenu();
        if (!same) this.openBinding(wanted);
        this.openTable(wanted, parameters);
        if (path !== this.url({}).replace(/^#\/?/, "")) history.replaceState(null, "", this.url(parameters));
    }

    url(parameters) {
        const { namespace, name, table } = this.shown;
        const query = new URLSearchParams(parameters).toString();
        return `#/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/${table}${query ? `?${query}` : ""}`;
    }

    keepView(view) {
        // Between a step to another table and its rows, what the grid says is still about the table before: writing it
        // down would take the step back.
        if (!this.shown || this.drawn === null || location.hash.split("?")[0] !== this.url({})) return;
        this.view = view;
        const parameters = {};
        if (Object.keys(view).length) parameters.view = JSON.stringify(view);
        if (this.grid.search) parameters.q = this.grid.search;
        history.replaceState(null, "", this.url(parameters));
    }

    // -- a binding and its panels

    openBinding({ namespace, name }) {
        for (const stop of this.stops) stop();
        this.stops = [];
        this.detail = null;
        const binding = this.gateway.binding(namespace, name);
        this.binding = binding;
        this.stops.push(
            binding.watch(
                (detail) => {
                    if (detail.deleted) {
                        this.gone(`${namespace}/${name} does not exist any more.`);
                        return;
                    }
                    this.offset = Math.min(this.offset, Date.now() - detail.now);
                    this.detail = detail;
                    this.render();
                },
                (error) => (error instanceof GatewayError && error.status === 404 ? this.gone(error.message) : this.trouble(error)),
            ),
        );
        for (const [table, render] of [
            ["control_raw", (rows) => panels.control(rows, this.detail?.control?.topic)],
            ["orchestrator_logs", panels.logs],
        ]) {
            const live = binding.getTable(table);
            live.onUpdate(() => render(live.rows));
            render([]);
            this.stops.push(() => live.close());
        }
        for (const id of ["head", "tabs", "work"]) byId(id).hidden = false;
    }

    gone(message) {
        for (const stop of this.stops) stop();
        this.stops = [];
        this.table?.close();
        this.table = null;
        this.detail = null;
        for (const id of ["head", "tabs", "work", "notice"]) byId(id).hidden = true;
        const empty = byId("empty");
        empty.hidden = false;
        show(empty, h("h1", {}, "Nothing to show"), h("p", {}, message), h("p", {}, h("a", { href: "#/" }, "All bindings")));
        this.shown = null;
    }

    openTable(wanted, parameters) {
        this.table?.close();
        this.shown = wanted;
        this.live = { state: "swapping", reason: "opening" };
        this.rates = [];
        this.drawn = null;
        this.charts.clear();
        let view = readView(parameters.get("view"));
        this.view = view;
        const given = parameters.get("q") ?? "";
        byId("search").value = given;
        const table = this.binding.getTable(wanted.table, { arrow: true });
        this.table = table;
        let opened = false;
        table.onUpdate(({ kind, arrow, header }) => {
            if (table !== this.table) return;
            if (!opened) {
                opened = true;
                // Whoever types before the first rows are there must not lose it.
                const search = byId("search").value.trim();
                this.grid.open(wanted.table, arrow, view, search).then(() => {
                    this.gridShows(table, header.generation);
                    if (search !== given) this.keepView(this.view ?? {});
                });
                view = null;
            } else if (kind === "delta") {
                this.grid.update(arrow);
                if (header.newestEventTime) this.charts.sampleFreshness(Date.now() - this.offset - header.newestEventTime);
            } else {
                this.grid.replace(arrow, kind === "swap").then(() => {
                    this.gridShows(table, header.generation);
                    if (kind === "swap") this.flash();
                });
            }
        });
        table.onFrame((header) => {
            if (table !== this.table) return;
            if (header.type === "heartbeat" || header.type === "state") this.offset = Math.min(this.offset, Date.now() - header.ts);
            if (header.rows !== null && header.rows !== undefined) {
                this.live.rows = header.rows;
                this.rates.push([performance.now(), header.rows]);
                while (this.rates.length > 2 && this.rates[1][0] < performance.now() - 5000) this.rates.shift();
            }
            this.heard = performance.now();
            this.live = { ...table.state, rows: this.live.rows, heardAge: table.state.ageMs };
        });
        table.onState((state) => {
            if (table !== this.table) return;
            this.live = { ...state, rows: this.live.rows, heardAge: state.ageMs };
            this.render();
        });
        this.render();
        setTimeout(() => this.topKeys(), 600);
    }

    /** The grid has drawn the rows of a generation: only now does the head speak of it. */
    gridShows(table, generation) {
        if (table !== this.table) return;
        this.drawn = generation;
        this.render();
    }

    flash() {
        this.rates = [];
        const panel = byId("panel-table");
        panel.classList.remove("swapped");
        void panel.offsetWidth;
        panel.classList.add("swapped");
    }

    rate() {
        if (this.rates.length < 2) return "–";
        const [[from, before], [to, after]] = [this.rates[0], this.rates.at(-1)];
        return to - from < 500 ? "–" : count(Math.max(0, Math.round(((after - before) / (to - from)) * 1000)));
    }

    /** Age grows between frames: a page that hears nothing must not look fresh. */
    aged() {
        const since = this.heard ? performance.now() - this.heard : 0;
        const age = this.live.heardAge === null || this.live.heardAge === undefined ? null : this.live.heardAge + since;
        const moving = this.drawn !== null && this.live.generation && this.live.generation !== this.drawn;
        if (!moving || this.live.state === "lost") return { ...this.live, ageMs: age };
        const reason = `moving to generation ${this.live.generation}`;
        return { ...this.live, state: "swapping", reason, generation: this.drawn, sources: null, ageMs: age };
    }

    render() {
        panels.bindingsList(this.list, this.shown);
        if (!this.shown || !this.detail) return;
        const live = this.aged();
        panels.head(this.detail, live, this.rate());
        panels.notice(this.detail);
        panels.generations(this.detail, Number.isFinite(this.offset) ? this.offset : 0);
        if (live.state !== "lost") this.charts.sampleRows(live.rows);
        document.title = `${live.state === "live" ? "" : `[${live.state}] `}${this.shown.name} · TopicBinding`;
        show(
            byId("tables"),
            ...TABLES.map(([table, word], index) =>
                h(
                    "a",
                    {
                        role: "tab",
                        href: `#/${encodeURIComponent(this.shown.namespace)}/${encodeURIComponent(this.shown.name)}/${table}`,
                        "aria-selected": String(table === this.shown.table),
                        title: `${word} (${index + 1})`,
                    },
                    table,
                ),
            ),
        );
        const counts = this.detail.generations.find((each) => each.number === live.generation);
        show(
            byId("status"),
            h("span", {}, `${count(live.rows)} rows of generation ${live.generation ?? "–"}`),
            counts?.driverVersion ? h("span", {}, `driver ${counts.driverVersion}`) : null,
            h("span", {}, live.state === "live" ? `heard ${duration(live.ageMs)} ago` : `${live.state}: ${live.reason || "–"}`),
        );
        document.body.dataset.state = live.state;
    }

    async topKeys() {
        if (!this.table || !this.detail || document.hidden) return;
        const column = this.detail.tables[this.shown.table]?.[0]?.name;
        const better = this.shown.table === "final_ui" ? (this.detail.tables.accounts_ui?.[1]?.name ?? column) : column;
        if (better) this.charts.top(better, await this.grid.top(better, 8));
    }

    // -- buttons and keys

    buttons() {
        show(
            byId("tabs"),
            ...PANELS.map(([panel, word]) =>
                h("button", { role: "tab", "data-panel": panel, "aria-selected": String(panel === "table"), "aria-controls": `panel-${panel}` }, word),
            ),
        );
        byId("tabs").addEventListener("click", (event) => {
            const panel = event.target.closest("button")?.dataset.panel;
            if (!panel) return;
            document.body.dataset.panel = panel;
            for (const button of byId("tabs").children) button.setAttribute("aria-selected", String(button.dataset.panel === panel));
        });
        byId("theme").onclick = theme.toggle;
        byId("help-button").onclick = () => byId("help").showModal();
        byId("menu").onclick = () => {
            const open = document.body.classList.toggle("menu-open");
            byId("menu").setAttribute("aria-expanded", String(open));
        };
        byId("bindings").addEventListener("click", (event) => {
            if (event.target.closest("a")) this.closeMenu();
        });
        byId("configure").onclick = () => this.configure();
        byId("reset").onclick = () => {
            byId("search").value = "";
            this.grid.reset();
        };
        let typing = 0;
        byId("search").oninput = () => {
            clearTimeout(typing);
            typing = setTimeout(async () => {
                await this.grid.setSearch(byId("search").value.trim());
                this.keepView(this.view ?? {});
            }, 200);
        };
        for (const format of ["csv", "arrow"]) byId(`download-${format}`).onclick = () => this.download(format);
        addEventListener("keydown", (event) => this.key(event));
    }

    closeMenu() {
        document.body.classList.remove("menu-open");
        byId("menu").setAttribute("aria-expanded", "false");
    }

    async configure() {
        await this.grid.toggleSettings();
        byId("configure").setAttribute("aria-pressed", String(this.grid.settingsOpen));
    }

    async download(format) {
        const { name, table } = this.shown;
        const query = new URLSearchParams({ format, limit: 1_000_000 });
        const answer = await this.gateway.fetch(`${this.binding.path}/tables/${table}?${query}`);
        const link = h("a", { href: URL.createObjectURL(await answer.blob()), download: `${name}-${table}-g${answer.headers.get("X-TopicBinding-Generation")}.${format}` });
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }

    key(event) {
        const typing = event.composedPath()[0];
        if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(typing.tagName) || typing.isContentEditable) {
            if (event.key === "Escape") typing.blur?.();
            return;
        }
        const table = TABLES[Number(event.key) - 1];
        if (table && this.shown) location.hash = `#/${encodeURIComponent(this.shown.namespace)}/${encodeURIComponent(this.shown.name)}/${table[0]}`;
        else if (event.key === "/") byId("search").focus();
        else if (event.key === "c") this.configure();
        else if (event.key === "t") theme.toggle();
        else if (event.key === "?") byId("help").showModal();
        else if (event.key === "j" || event.key === "k") this.step(event.key === "j" ? 1 : -1);
        else return;
        event.preventDefault();
    }

    step(by) {
        const at = this.list.findIndex((each) => each.namespace === this.shown?.namespace && each.name === this.shown?.name);
        const next = this.list[(at + by + this.list.length) % this.list.length];
        if (next) location.hash = `#/${encodeURIComponent(next.namespace)}/${encodeURIComponent(next.name)}/final_ui`;
    }
}

/** The view in a URL may be anything: only an object is taken, and the grid checks its columns. */
function readView(text) {
    try {
        const view = JSON.parse(text);
        return view !== null && typeof view === "object" && !Array.isArray(view) ? view : null;
    } catch {
        return null;
    }
}

const page = new Page();
window.topicbinding = page; // for people who open the console, and for tests
page.start().catch((error) => {
    console.error(error);
    byId("empty").hidden = false;
    show(byId("empty"), h("h1", {}, "The page could not start"), h("p", {}, String(error.message ?? error)));
});
