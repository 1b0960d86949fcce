// Puts the page into dist/: our sources as they are, and from the locked packages only the files that a browser loads.
// There is no bundler: every file is an ES module that the gateway serves itself, beside a compressed copy.
import { cp, mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
const vendor = [
    "@perspective-dev/client/dist/cdn/perspective.js",
    "@perspective-dev/client/dist/cdn/perspective-server.worker.js",
    "@perspective-dev/client/dist/wasm/perspective-js.wasm",
    "@perspective-dev/client/LICENSE.md",
    "@perspective-dev/server/dist/wasm/perspective-server.wasm",
    "@perspective-dev/viewer/dist/esm/perspective-viewer.js",
    "@perspective-dev/viewer/dist/wasm/perspective-viewer.js",
    "@perspective-dev/viewer/dist/wasm/perspective-viewer.wasm",
    "@perspective-dev/viewer/dist/wasm/snippets",
    "@perspective-dev/viewer/dist/css/pro.css",
    "@perspective-dev/viewer/dist/css/pro-dark.css",
    "@perspective-dev/viewer-datagrid/dist/cdn/perspective-viewer-datagrid.js",
    "uplot/dist/uPlot.esm.js",
    "uplot/dist/uPlot.min.css",
    "uplot/LICENSE",
];
const compressed = new Set([".js", ".css", ".html", ".svg", ".wasm"]);

async function* files(folder) {
    for (const entry of await readdir(folder, { withFileTypes: true })) {
        const path = join(folder, entry.name);
        if (entry.isDirectory()) yield* files(path);
        else yield path;
    }
}

await rm(dist, { recursive: true, force: true });
await cp(join(here, "src"), dist, { recursive: true });
for (const path of vendor) {
    const target = join(dist, "vendor", path);
    await mkdir(dirname(target), { recursive: true });
    await cp(join(here, "node_modules", path), target, { recursive: true });
}
let bytes = 0;
let packed = 0;
for await (const path of files(dist)) {
    bytes += (await stat(path)).size;
    if (!compressed.has(extname(path))) continue;
    const body = await readFile(path);
    // Source maps are left out of dist; a reference to one would only be a 404 in the console.
    const plain = extname(path) === ".js" ? Buffer.from(body.toString().replace(/\n\/\/# sourceMappingURL=\S+\s*$/, "\n")) : body;
    if (plain.length !== body.length) await writeFile(path, plain);
    const small = gzipSync(plain, { level: 9 });
    if (small.length < plain.length) await writeFile(`${path}.gz`, small);
    packed += Math.min(small.length, plain.length);
}
console.log(`dist: ${(bytes / 1e6).toFixed(1)} MB, ${(packed / 1e6).toFixed(1)} MB over the wire`);
