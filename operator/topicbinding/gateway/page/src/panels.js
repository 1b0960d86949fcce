// Everything around the grid: the list of bindings, the header, the timeline of generations, control messages and logs.
import { byId, clock, count, duration, h, show } from "./dom.js";

/** A small picture of the join: left and natural keep the whole left side. */
function joinIcon(join) {
    return h("img.join-icon", { src: `page/join-${join === "inner" ? "inner" : "left"}.svg`, alt: `${join} join`, title: `${join} join`, width: 20, height: 13 });
}

const STATE_WORDS = { live: "live", stale: "stale", swapping: "swapping", failed: "failed", lost: "no connection" };

export function bindingsList(bindings, chosen) {
    const byNamespace = Map.groupBy
        ? Map.groupBy(bindings, (each) => each.namespace)
        : bindings.reduce((map, each) => map.set(each.namespace, [...(map.get(each.namespace) ?? []), each]), new Map());
    const groups = [...byNamespace].map(([namespace, members]) => [
        h("h2", {}, namespace),
        h("ul", {}, ...members.map((each) => bindingLink(each, chosen))),
    ]);
    show(byId("bindings"), ...groups.flat(), bindings.length ? null : h("p.hint", {}, "No bindings yet."));
}

function bindingLink(each, chosen) {
    const here = chosen && chosen.namespace === each.namespace && chosen.name === each.name;
    const building = each.building ? h("span.mini", {}, `g${each.building.generation} ${each.building.percent ?? 0} %`) : null;
    return h(
        "li",
        {},
        h(
            "a.binding",
            { href: `#/${encodeURIComponent(each.namespace)}/${encodeURIComponent(each.name)}/final_ui`, "aria-current": here ? "page" : null },
            h(`span.dot.${each.state}`, { title: each.state }),
            h("span.binding-name", {}, each.name),
            building,
            h("span.binding-topics", {}, each.usersTopic, joinIcon(each.joinType), each.accountsTopic),
        ),
    );
}

/** The head of a binding. `live` is what the stream of the shown table last said. */
export function head(binding, live, rate) {
    const active = binding.generations.find((each) => each.number === (live.generation ?? binding.activeGeneration));
    const sources = live.sources ?? {};
    const users = sources.usersTopic ?? active?.usersTopic ?? binding.usersTopic;
    const accounts = sources.accountsTopic ?? active?.accountsTopic ?? binding.accountsTopic;
    const join = sources.joinType ?? active?.joinType ?? binding.joinType;
    show(
        byId("head"),
        h(
            "div.title",
            {},
            h("h1", {}, binding.name, h("small", {}, binding.namespace)),
            h(
                "p.sources",
                {},
                h("span.topic.users", { title: "users topic" }, users),
                h("span.join", {}, joinIcon(join), join),
                h("span.topic.accounts", { title: "accounts topic" }, accounts),
            ),
        ),
        h(
            "dl.facts",
            {},
            fact("generation", live.generation ?? binding.activeGeneration ?? "–"),
            fact("rows", count(live.rows)),
            fact("rows/s", rate),
            fact("age", live.state === "lost" ? "unknown" : duration(live.ageMs)),
            fact("lag", active?.lag === null || active?.lag === undefined ? "–" : `${count(active.lag)} rows`),
            fact("mode", active?.mode ?? "–"),
        ),
        h(
            `div.badge.${live.state}`,
            { id: "badge", role: "status", "data-state": live.state },
            h("span.pulse", { "aria-hidden": "true" }),
            h("strong", {}, STATE_WORDS[live.state] ?? live.state),
            live.reason ? h("span.why", {}, live.reason) : null,
        ),
    );
}

function fact(name, value) {
    return h("div", {}, h("dt", {}, name), h("dd", { "data-fact": name }, String(value)));
}

/** What the person should know beyond the table: a wish that failed, a pause, a driver that counts bad rows. */
export function notice(binding) {
    const element = byId("notice");
    const stalled = binding.conditions.find((each) => each.type === "Stalled" && each.status === "True");
    const text = stalled
        ? `The newest wish was not fulfilled (${stalled.reason}): ${stalled.message}`
        : binding.paused
          ? "Reconciliation of this binding is paused."
          : binding.wish.state === "Suspended"
            ? "This binding is suspended."
            : "";
    element.hidden = !text;
    element.textContent = text;
}

/** The timeline: newest first. `offset` is how far this machine's clock is ahead of the gateway's. */
export function generations(binding, offset) {
    const now = Date.now() - offset;
    show(byId("generations"), ...[...binding.generations].reverse().map((each) => generation(each, binding, now)));
}

function generation(each, binding, now) {
    const wait = each.retireAt ? new Date(each.retireAt).getTime() - now : null;
    const total = binding.lingerSeconds * 1000;
    const details = [];
    if (each.role === "building" && each.percent !== null) {
        const eta = each.etaSeconds === null ? "" : `, about ${duration(each.etaSeconds * 1000)} to go`;
        details.push(progress(each.percent, "reading its topics"), h("p", {}, `${each.percent} %${eta}`));
    } else if (each.role === "building") {
        details.push(progress(null, "starting"), h("p", {}, each.phase ?? "waiting for its pod"));
    }
    if (each.role === "lingering" && wait !== null) {
        details.push(
            progress(Math.max(0, Math.min(100, (wait / Math.max(total, 1)) * 100)), "linger left", "linger"),
            h("p", {}, wait > 0 ? `lingers for ${Math.ceil(wait / 1000)} s` : "about to leave"),
        );
    }
    if (each.role === "failed" || each.phase === "Failed") {
        details.push(h("p.error", {}, each.reason ? h("strong", {}, each.reason) : null, each.message ? ` ${each.message}` : ""));
    }
    const counts = [];
    if (each.rows) counts.push(`${count(each.rows.final)} joined of ${count(each.rows.users)} + ${count(each.rows.accounts)}`);
    const bad = (each.badRows?.users ?? 0) + (each.badRows?.accounts ?? 0);
    if (bad) counts.push(`${count(bad)} bad rows`);
    const keyless = (each.nullKeys?.users ?? 0) + (each.nullKeys?.accounts ?? 0);
    if (keyless) counts.push(`${count(keyless)} without key`);
    return h(
        `li.generation.${each.role}`,
        { "data-generation": each.number },
        h("span.number", {}, `g${each.number}`),
        h(
            "div.generation-body",
            {},
            h(
                "p.generation-title",
                {},
                each.usersTopic ? h("span", {}, each.usersTopic, joinIcon(each.joinType), each.accountsTopic) : h("span", {}, "warm standby"),
                h("span.role", {}, each.role),
            ),
            ...details,
            counts.length ? h("p.counts", {}, counts.join(" · ")) : null,
            each.badSamples?.length ? samples(each.badSamples) : null,
        ),
    );
}

function samples(bad) {
    return h(
        "details.samples",
        {},
        h("summary", {}, "bad rows, samples"),
        h("ul", {}, ...bad.map((one) => h("li", {}, h("code", {}, `${one.side} ${one.partition}/${one.offset}`), ` ${one.reason}: `, h("code", {}, one.value)))),
    );
}

function progress(percent, label, kind = "build") {
    const bar = h(`progress.${kind}`, { max: 100, "aria-label": label });
    if (percent !== null) bar.setAttribute("value", percent);
    return bar;
}

export function control(rows, topic) {
    byId("control-topic").textContent = topic ?? "";
    const newest = rows.slice(-200).reverse();
    show(
        byId("control"),
        ...newest.map((row) =>
            h(
                "li",
                {},
                h(`span.verdict.${/^[a-z]+$/.test(row.verdict ?? "") ? row.verdict : "unknown"}`, {}, row.verdict || "seen"),
                h("code.message", {}, row.message ?? "(tombstone)"),
                row.reason || row.generation ? h("p.reason", {}, outcome(row), row.reason) : null,
                h("time", { datetime: row.ts ?? "" }, clock(row.ts)),
            ),
        ),
        newest.length ? null : h("li.hint", {}, topic ? `Nothing yet on ${topic}.` : "This binding has no control topic."),
    );
}

/** What a message became: the generation that was built for it, and whether that serves. */
function outcome(row) {
    if (row.generation === null || row.generation === undefined) return null;
    return h(`span.outcome.${row.outcome === "failed" ? "failed" : "fine"}`, {}, `g${row.generation}${row.outcome ? ` ${row.outcome}` : ""}`, " ");
}

export function logs(rows) {
    const newest = rows.slice(-300).reverse();
    show(
        byId("logs"),
        ...newest.map((row) =>
            h("li", {}, h("time", { datetime: row.ts ?? "" }, clock(row.ts)), h(`span.level.${row.level}`, {}, row.level), h("span.msg", {}, row.msg)),
        ),
        newest.length ? null : h("li.hint", {}, "Nothing happened yet."),
    );
}
