#!/usr/bin/env node
// Keeps addresses with tags in one file of the plugin's data folder.

const fs = require("node:fs");
const path = require("node:path");

const request = JSON.parse(fs.readFileSync(0, "utf8"));
const file = path.join(request.context.data_dir, "bookmarks.json");
const kept = fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, "utf8")) : {};

const tools = {
  bookmark_add({ url, tags = [] }) {
    kept[url] = [...new Set([...(kept[url] ?? []), ...tags])];
    fs.writeFileSync(file, JSON.stringify(kept, null, 2));
    return `${Object.keys(kept).length} kept`;
  },
  bookmark_find({ tag }) {
    const found = Object.keys(kept).filter((url) => kept[url].includes(tag));
    if (found.length === 0) throw new Error(`nothing has the tag "${tag}"`);
    return found.join("\n");
  },
};

try {
  console.log(JSON.stringify({ result: tools[request.tool](request.input), is_error: false }));
} catch (error) {
  console.log(JSON.stringify({ result: error.message, is_error: true }));
}
