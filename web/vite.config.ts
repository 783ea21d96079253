import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

// The host serves what is compressed already, so that it needs no compressing itself.
function compressed(): Plugin {
  return {
    name: "compressed",
    writeBundle({ dir }) {
      const folder = join(dir!, "assets");
      for (const name of readdirSync(folder)) {
        if (/\.(js|css)$/.test(name)) writeFileSync(join(folder, `${name}.gz`), gzipSync(readFileSync(join(folder, name)), { level: 9 }));
      }
    },
  };
}

// Built into the Python package, so that anyplug needs no Node and no network to show the page.
export default defineConfig({
  base: "/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: [compressed()],
  worker: { format: "es" },
  build: {
    outDir: "../src/anyplug/frontends/console/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0, // the Content-Security-Policy allows no data: in scripts and styles
  },
});
