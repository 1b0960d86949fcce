// The grid: one Perspective viewer whose rows change under it. The view (columns, sort, filter, group by, scroll) belongs
// to the person and survives every update and every swap; only the rows are ours.
import perspective from "./vendor/@perspective-dev/client/dist/cdn/perspective.js";
import { init_client } from "./vendor/@perspective-dev/viewer/dist/esm/perspective-viewer.js";
import * as viewerModule from "./vendor/@perspective-dev/viewer/dist/wasm/perspective-viewer.js";
import { joinArrow } from "./client.js";
import * as theme from "./theme.js";

// The module is given rather than found: left alone, the viewer would import itself from a blob, which our CSP forbids.
const viewerWasm = new URL("./vendor/@perspective-dev/viewer/dist/wasm/perspective-viewer.wasm", import.meta.url);
await init_client(fetch(viewerWasm), viewerModule);
// The 32-bit engine holds more rows than a page should, and is the faster one.
perspective.init_server({
    wasm32: () => fetch(new URL("./vendor/@perspective-dev/server/dist/wasm/perspective-server.wasm", import.meta.url)),
});
await import("./vendor/@perspective-dev/viewer-datagrid/dist/cdn/perspective-viewer-datagrid.js");

const ROW = "_row";
const SEARCH = "search in all columns";
const GATHER_MS = 40; // deltas that arrive within this are one update of the engine
const MARK_MS = 1600;
const VIEW_KEYS = ["columns", "group_by", "split_by", "sort", "filter", "aggregates", "expressions", "columns_config"];

export class Grid {
    #viewer = document.createElement("perspective-viewer");
    #engine = null;
    #table = null;
    #names = 0;
    #schema = null;
    #columns = [];
    #arrowSchema = null;
    #work = Promise.resolve();
    #waiting = [];
    #timer = 0;
    #search = "";
    #title = "";
    #marks = new Marks();
    #selection = new Selection();
    #restoring = 0;

    /** `keyColumn` tells the name of the column that people know a row by, once it is known. */
    constructor(place, onView, keyColumn) {
        this.onView = onView;
        this.keyColumn = keyColumn;
        place.append(this.#viewer);
        this.#viewer.addEventListener("perspective-config-update", () => {
            this.#marks.forget();
            if (!this.#restoring) this.#viewChanged();
        });
        theme.onChange(() => this.#queue(() => this.#restore({ theme: themeName() })));
    }

    async start() {
        this.#engine = await perspective.worker();
        await this.#viewer.load(this.#engine);
    }

    /** Show another table: rows as Arrow, and the view it should have (null: the plain one). */
    open(title, arrow, view, search) {
        return this.#queue(async () => {
            this.#drop();
            this.#title = title;
            this.#search = search ?? "";
            this.#selection.clear();
            await this.#fresh(arrow, view);
        });
    }

    /** All rows anew, the view as it is: after a snapshot or a swap. Other rows are known by their keys. */
    replace(arrow, others) {
        return this.#queue(async () => {
            this.#drop();
            this.#marks.forget();
            const keys = others ? await this.#keysOf(this.#selection.rows) : [];
            await this.#replace(arrow);
            if (others) this.#selection.select(await this.#rowsOf(keys));
        });
    }

    async #replace(arrow) {
        if (this.#table && sameBytes(schemaOf(arrow), this.#arrowSchema)) await this.#table.replace(arrow);
        else await this.#fresh(arrow, this.#table ? await this.view() : null);
    }

    async #keysOf(rows) {
        const key = this.keyColumn();
        const found = rows.map((row) => this.#query([key], [[ROW, "==", row]]));
        return (await Promise.all(found)).flat().map((each) => each[key]);
    }

    async #rowsOf(keys) {
        const key = this.keyColumn();
        const found = keys.map((value) => this.#query([ROW], [[key, "==", value]]));
        return (await Promise.all(found)).flat().map((each) => each[ROW]);
    }

    /** At most one row of the table that fits. */
    async #query(columns, filter) {
        if (!this.#table || ![...columns, ...filter.map(([name]) => name)].every((name) => name in JSON.parse(this.#schema))) return [];
        const view = await this.#table.view({ columns, filter });
        try {
            return await view.to_json({ start_row: 0, end_row: 1 });
        } finally {
            await view.delete();
        }
    }

    /** Rows that changed. */
    update(arrow) {
        this.#waiting.push(arrow);
        this.#timer ||= setTimeout(() => {
            this.#timer = 0;
            this.#queue(async () => {
                const arrived = this.#waiting;
                this.#waiting = [];
                if (arrived.length && this.#table) await this.#table.update(joinArrow(arrived));
            });
        }, GATHER_MS);
    }

    /** The view as the URL keeps it: only what differs from the plain one. */
    async view() {
        const saved = await this.#viewer.save();
        const view = Object.fromEntries(VIEW_KEYS.map((key) => [key, saved[key]]));
        view.filter = (view.filter ?? []).filter(([column]) => column !== SEARCH);
        view.expressions = Object.fromEntries(Object.entries(view.expressions ?? {}).filter(([name]) => name !== SEARCH));
        view.columns = (view.columns ?? []).filter((name) => name !== SEARCH);
        return view;
    }

    async setSearch(text) {
        this.#search = text;
        return this.#queue(async () => this.#restore(this.#withSearch(await this.view())));
    }

    get search() {
        return this.#search;
    }

    reset() {
        this.#search = "";
        return this.#queue(async () => {
            await this.#restore(this.#withSearch({ ...this.#plain(), columns_config: {} }));
            this.#viewChanged();
        });
    }

    toggleSettings() {
        return this.#viewer.toggleConfig();
    }

    get settingsOpen() {
        return this.#viewer.hasAttribute("settings");
    }

    /** The most frequent values of a column: [[value, count], …]. */
    async top(column, count) {
        if (!this.#table || !(column in JSON.parse(this.#schema))) return [];
        const view = await this.#table.view({
            group_by: [column],
            columns: [column],
            aggregates: { [column]: "count" },
            sort: [[column, "desc"]],
        });
        try {
            const rows = await view.to_json({ start_row: 0, end_row: count + 1 });
            return rows.filter((row) => row.__ROW_PATH__.length === 1).map((row) => [row.__ROW_PATH__[0], row[column]]);
        } finally {
            await view.delete();
        }
    }

    // One thing at a time: the engine answers in order, and a swap must not overtake an update.
    #queue(task) {
        this.#work = this.#work.then(task).catch((error) => console.error(error));
        return this.#work;
    }

    #drop() {
        clearTimeout(this.#timer);
        this.#timer = 0;
        this.#waiting = [];
    }

    async #fresh(arrow, view) {
        const before = this.#table;
        const name = `rows ${++this.#names}`;
        this.#table = await this.#engine.table(arrow, { index: ROW, name });
        this.#arrowSchema = schemaOf(arrow).slice();
        this.#columns = (await this.#table.columns()).filter((column) => column !== ROW);
        this.#schema = JSON.stringify(await this.#table.schema());
        this.#marks.forget();
        const wanted = this.#prune(view ?? this.#plain(), JSON.parse(this.#schema));
        await this.#restore({
            table: name,
            plugin: "Datagrid",
            plugin_config: { edit_mode: "READ_ONLY", font_size: 13 },
            theme: themeName(),
            title: this.#title,
            ...this.#plain(),
            ...this.#withSearch(wanted),
        });
        await before?.delete({ lazy: true });
        await this.#marks.follow(this.#viewer);
        await this.#selection.follow(this.#viewer);
    }

    #plain() {
        return { columns: [...this.#columns], group_by: [], split_by: [], sort: [], filter: [], aggregates: {}, expressions: {} };
    }

    // A view may name columns that another generation does not have.
    #prune(view, schema) {
        const known = (name) => name in schema || name in (view.expressions ?? {});
        const columns = (view.columns ?? []).filter(known);
        return {
            ...view,
            columns: columns.length ? columns : this.#columns,
            group_by: (view.group_by ?? []).filter(known),
            split_by: (view.split_by ?? []).filter(known),
            sort: (view.sort ?? []).filter(([name]) => known(name)),
            filter: (view.filter ?? []).filter(([name]) => known(name)),
            aggregates: Object.fromEntries(Object.entries(view.aggregates ?? {}).filter(([name]) => known(name))),
        };
    }

    #withSearch(view) {
        if (!this.#search) return view;
        const schema = JSON.parse(this.#schema);
        const parts = this.#columns.map((name) => `coalesce(${schema[name] === "string" ? `"${name}"` : `string("${name}")`}, ' ')`);
        const expression = `concat(${parts.join(", ' ', ")})`;
        return {
            ...view,
            expressions: { ...view.expressions, [SEARCH]: expression },
            filter: [...(view.filter ?? []), [SEARCH, "contains", this.#search]],
        };
    }

    async #restore(config) {
        this.#restoring += 1;
        this.#marks.forget();
        try {
            await this.#viewer.restore(config);
        } finally {
            this.#restoring -= 1;
        }
    }

    async #viewChanged() {
        const view = await this.view();
        const plain = this.#plain();
        const different = Object.fromEntries(
            Object.entries(view).filter(([key, value]) => value !== undefined && JSON.stringify(value) !== JSON.stringify(plain[key] ?? {})),
        );
        this.onView(different);
    }
}

/** The schema message at the beginning of an Arrow stream: a mark, the length of the metadata, the metadata. */
function schemaOf(arrow) {
    return arrow.subarray(0, 8 + new DataView(arrow.buffer, arrow.byteOffset).getInt32(4, true));
}

function sameBytes(one, other) {
    return other !== null && one.length === other.length && one.every((byte, index) => byte === other[index]);
}

function themeName() {
    return theme.current() === "light" ? "Pro Light" : "Pro Dark";
}

/** The row id behind a cell of a flat view; undefined where rows are grouped. */
function rowOf(grid, cell) {
    const model = grid.model;
    const meta = grid.regular_table.getMeta(cell);
    const flat = model && !model._config.group_by.length && !model._config.split_by.length;
    return flat && meta ? model._ids[meta.y - meta.y0]?.[0] : undefined;
}

/** The rows a person has picked, by their identity: they stay picked wherever sorting and updates move them. */
class Selection {
    #rows = new Set();
    #grid = null;

    get rows() {
        return [...this.#rows];
    }

    clear() {
        this.select([]);
    }

    select(rows) {
        this.#rows = new Set(rows);
        if (this.#grid) this.#style();
    }

    async follow(viewer) {
        const grid = await viewer.getPlugin("Datagrid");
        if (grid === this.#grid) return;
        this.#grid = grid;
        const sheet = new CSSStyleSheet();
        sheet.replaceSync("tr.tb-selected td { box-shadow: inset 0 0 0 100vmax color-mix(in srgb, var(--tb-mark, #2dd4bf) 22%, transparent); }");
        grid.shadowRoot?.adoptedStyleSheets.push(sheet);
        grid.regular_table.addStyleListener(() => this.#style());
        grid.regular_table.addEventListener("click", (event) => {
            const cell = event.composedPath().find((each) => each.tagName === "TD");
            const row = cell && rowOf(grid, cell);
            if (row === undefined || row === null) return;
            const was = this.#rows.has(row);
            const more = event.ctrlKey || event.metaKey;
            const rest = more ? this.rows.filter((each) => each !== row) : [];
            this.select(was && (more || this.#rows.size === 1) ? rest : [...rest, row]);
        });
    }

    #style() {
        for (const line of this.#grid.regular_table.querySelectorAll("tbody tr")) {
            const cell = line.querySelector("td");
            const picked = cell !== null && this.#rows.has(rowOf(this.#grid, cell));
            line.classList.toggle("tb-selected", picked);
            if (picked) line.setAttribute("aria-selected", "true");
            else line.removeAttribute("aria-selected");
        }
    }
}

/** Marks cells of visible rows that changed, and rows that are new, for a moment. Rows are told apart by `_row`. */
class Marks {
    #before = new Map();
    #marked = new Map();
    #start = "";
    #seen = { lastY: -1, rows: 0 };
    #grid = null;

    forget() {
        this.#before.clear();
        this.#marked.clear();
    }

    async follow(viewer) {
        const grid = await viewer.getPlugin("Datagrid");
        if (grid === this.#grid) return;
        this.#grid = grid;
        const sheet = new CSSStyleSheet();
        sheet.replaceSync(`
            td.tb-changed { animation: tb-changed ${MARK_MS}ms ease-out; }
            @keyframes tb-changed { from { background: color-mix(in srgb, var(--tb-mark, #2dd4bf) 45%, transparent); } }
        `);
        grid.shadowRoot?.adoptedStyleSheets.push(sheet);
        grid.regular_table.addStyleListener(() => this.#style(grid));
    }

    #style(grid) {
        const model = grid.model;
        const now = performance.now();
        const seen = new Map();
        // A row that was not there before is new only where the person did not just scroll, sort or filter: among the
        // rows that were visible, or behind what was the last row.
        const window = model?._last_window;
        const still = window !== undefined && this.#before.size > 0 && this.#start === `${window.start_row} ${window.start_col}`;
        const { lastY, rows } = this.#seen;
        const isNew = (y) => still && (y <= lastY || y >= rows);
        this.#start = window ? `${window.start_row} ${window.start_col}` : "";
        let y = -1;
        for (const cell of grid.regular_table.querySelectorAll("tbody td")) {
            const meta = grid.regular_table.getMeta(cell);
            const id = rowOf(grid, cell);
            if (id === undefined || id === null) {
                this.#unmark(cell);
                continue;
            }
            const key = `${id}\u0000${model._column_paths[meta.x]}`;
            const value = cell.textContent;
            const before = this.#before.get(key);
            const changed = before === undefined ? isNew(meta.y) : before !== value;
            y = Math.max(y, meta.y);
            if (changed) this.#marked.set(key, now);
            seen.set(key, value);
            const since = now - (this.#marked.get(key) ?? -Infinity);
            if (since >= MARK_MS) this.#unmark(cell);
            else if (changed || cell.dataset.tbMark !== key) this.#mark(cell, key, since);
        }
        for (const [key, at] of this.#marked) if (now - at > MARK_MS) this.#marked.delete(key);
        this.#before = seen;
        this.#seen = { lastY: y, rows: model?._num_rows ?? 0 };
    }

    // Cells are reused for other rows: the animation starts where that row's has arrived.
    #mark(cell, key, since) {
        cell.classList.remove("tb-changed");
        void cell.offsetWidth;
        cell.dataset.tbMark = key;
        cell.style.animationDelay = `${-Math.round(since)}ms`;
        cell.classList.add("tb-changed");
    }

    #unmark(cell) {
        if (cell.dataset.tbMark === undefined) return;
        cell.classList.remove("tb-changed");
        delete cell.dataset.tbMark;
    }
}
