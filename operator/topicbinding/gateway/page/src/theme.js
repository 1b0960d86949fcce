// Dark or light: what the person chose, else what their system prefers. A file of its own so that it runs first.
const KEY = "topicbinding.theme";
const system = matchMedia("(prefers-color-scheme: light)");

export function current() {
    return document.documentElement.dataset.theme;
}

export function toggle() {
    localStorage.setItem(KEY, current() === "dark" ? "light" : "dark");
    apply();
}

export function onChange(callback) {
    document.addEventListener("themechange", callback);
}

function apply() {
    document.documentElement.dataset.theme = localStorage.getItem(KEY) ?? (system.matches ? "light" : "dark");
    document.dispatchEvent(new Event("themechange"));
}

system.addEventListener("change", apply);
apply();
