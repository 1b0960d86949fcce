// Small helpers to make elements. Text is always set as text: nothing that came from a topic is ever parsed as HTML.

/** h("span.badge.live", {title: "…"}, "live", child): an element with classes, attributes and children. */
export function h(selector, attributes = {}, ...children) {
    const [tag, ...classes] = selector.split(".");
    const element = document.createElement(tag || "div");
    if (classes.length) element.className = classes.join(" ");
    for (const [name, value] of Object.entries(attributes)) {
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else if (value === true) element.setAttribute(name, "");
        else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return element;
}

export function byId(id) {
    return document.getElementById(id);
}

/** Make the children of an element say what these say, changing only what differs: focus, scroll and open details stay. */
export function show(element, ...children) {
    const next = document.createElement("div");
    next.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    morph(element, next);
}

function morph(from, to) {
    const wanted = [...to.childNodes];
    wanted.forEach((node, index) => {
        const there = from.childNodes[index];
        if (!there) from.append(node);
        else if (there.nodeName !== node.nodeName) there.replaceWith(node);
        else if (node.nodeType === Node.TEXT_NODE) {
            if (there.data !== node.data) there.data = node.data;
        } else {
            attributes(there, node);
            morph(there, node);
        }
    });
    while (from.childNodes.length > wanted.length) from.lastChild.remove();
}

function attributes(from, to) {
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
}

export function count(value) {
    return value === null || value === undefined ? "–" : Number(value).toLocaleString("en");
}

export function duration(ms) {
    if (ms === null || ms === undefined) return "–";
    if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
    const seconds = ms / 1000;
    if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

export function clock(iso) {
    if (!iso) return "–";
    const time = new Date(iso);
    const today = new Date().toDateString() === time.toDateString();
    return today ? time.toLocaleTimeString("en-GB") : `${time.toLocaleDateString("en-CA")} ${time.toLocaleTimeString("en-GB")}`;
}
