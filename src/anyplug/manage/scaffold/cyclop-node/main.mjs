#!/usr/bin/env node
// The plugin PLUGIN_NAME, for Cyclop One and anyplug: one request on stdin, one answer on stdout.
//
// plugin.json says which tools there are, and what they need: "permissions": ["network"], for instance. What goes to
// stderr is the log: console.error("..."), then `anyplug -e . logs PLUGIN_NAME`.

import { readFileSync } from "node:fs";

// A second tool stands here and in plugin.json. The agent reads what it gives or throws.
const tools = {
  async "TOOL_NAME"({ text = "" }) {
    const words = text.split(/\s+/).filter(Boolean);
    if (words.length === 0) throw new Error("there is no text to count");
    return `words: ${words.length}`;
  },
};

const request = JSON.parse(readFileSync(0, "utf8")); // request.context.data_dir is a folder for what should last
let answer;
try {
  answer = { result: await tools[request.tool](request.input), is_error: false };
} catch (error) {
  answer = { result: error.message, is_error: true };
}
console.log(JSON.stringify(answer));
