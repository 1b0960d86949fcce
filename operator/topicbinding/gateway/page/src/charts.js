// Three small charts: rows over time, freshness, top keys. uPlot draws the lines, plain elements the bars.
import uPlot from "./vendor/uplot/dist/uPlot.esm.js";
import { byId, count, h, show } from "./dom.js";
import * as theme from "./theme.js";

const KEEP = 600; // points: five minutes at two a second

class Line {
    #times = [];
    #values = [];
    #plot = null;

    constructor(place, color, format) {
        this.place = place;
        this.color = color;
        this.format = format;
        new ResizeObserver(() => this.#size()).observe(place);
        theme.onChange(() => this.#make());
        this.#make();
    }

    add(time, value) {
        this.#times.push(time / 1000);
        this.#values.push(value);
        if (this.#times.length > KEEP) {
            this.#times.shift();
            this.#values.shift();
        }
        this.#draw();
    }

    clear() {
        this.#times = [];
        this.#values = [];
        this.#draw();
    }

    #make() {
        this.#plot?.destroy();
        const style = getComputedStyle(document.documentElement);
        const muted = style.getPropertyValue("--muted").trim();
        const grid = style.getPropertyValue("--line").trim();
        const color = style.getPropertyValue(this.color).trim();
        const axis = { stroke: muted, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
        this.#plot = new uPlot(
            {
                width: Math.max(100, this.place.clientWidth),
                height: Math.max(80, this.place.clientHeight),
                legend: { show: false },
                cursor: { y: false, points: { size: 6 } },
                padding: [8, 8, 0, 0],
                scales: { x: { time: true }, y: { range: (_, low, high) => range(low, high) } },
                series: [{}, { stroke: color, width: 2, fill: `color-mix(in srgb, ${color} 14%, transparent)`, points: { show: false } }],
                axes: [
                    { ...axis, size: 24, space: 70, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString("en-GB")) },
                    { ...axis, size: 52, space: 28, values: (_, ticks) => ticks.map(this.format) },
                ],
            },
            [this.#times, this.#values],
            this.place,
        );
    }

    #size() {
        const { clientWidth: width, clientHeight: height } = this.place;
        if (width > 0 && height > 0) this.#plot.setSize({ width, height });
    }

    #draw() {
        this.#plot.setData([this.#times, this.#values]);
    }
}

function range(low, high) {
    if (low === null || high === null) return [0, 1];
    const room = Math.max((high - low) * 0.15, high * 0.01, 1);
    return [Math.max(0, low - room), high + room];
}

export class Charts {
    #sampled = 0;

    constructor() {
        this.rows = new Line(byId("chart-rows"), "--accent", (value) => count(value));
        this.fresh = new Line(byId("chart-fresh"), "--accent-2", (value) => count(value));
    }

    sampleRows(rows) {
        const now = Date.now();
        if (rows === null || rows === undefined || now - this.#sampled < 450) return;
        this.#sampled = now;
        this.rows.add(now, rows);
    }

    sampleFreshness(ms) {
        if (ms !== null && ms >= 0 && ms < 3_600_000) this.fresh.add(Date.now(), ms);
    }

    clear() {
        this.rows.clear();
        this.fresh.clear();
        show(byId("chart-top"));
    }

    top(name, pairs) {
        byId("top-name").textContent = name ? `by ${name}` : "";
        const most = Math.max(1, ...pairs.map(([, size]) => size));
        show(
            byId("chart-top"),
            ...pairs.map(([value, size]) =>
                h(
                    "div.top-row",
                    {},
                    h("span.top-label", { title: String(value ?? "null") }, value === null ? "(null)" : String(value)),
                    h("meter", { min: 0, max: most, value: size, "aria-label": `${value}: ${size}` }),
                    h("span.top-count", {}, count(size)),
                ),
            ),
            pairs.length ? null : h("p.hint", {}, "No rows yet."),
        );
    }
}
