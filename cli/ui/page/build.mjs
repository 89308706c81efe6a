// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Builds the page into dist, which package ui embeds.
import { build } from "esbuild";
import { copyFile, readFile, readdir, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

await build({
  entryPoints: { page: "src/main.tsx" },
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "linked",
});
await copyFile("src/index.html", "dist/index.html");
await copyFile("src/icon.svg", "dist/icon.svg");
const licenses = await Promise.all(["preact", "uplot"].map(async (name) => `${name}\n\n${await readFile(`node_modules/${name}/LICENSE`)}`));
await writeFile("dist/licenses.txt", licenses.join("\n"));

const most = 300_000;
let size = 0;
for (const name of await readdir("dist")) {
  size += gzipSync(await readFile(`dist/${name}`)).length;
}
if (size > most) {
  throw new Error(`the page has ${size} bytes when compressed, more than ${most}`);
}
