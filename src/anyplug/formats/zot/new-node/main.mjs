#!/usr/bin/env node
// The extension PLUGIN_NAME, for zot and anyplug. What console prints is its log: `anyplug -e . logs PLUGIN_NAME`.

import { Extension, Failed } from "./anyplug-ext.mjs";

const ext = new Extension("PLUGIN_NAME", { version: "0.1.0" });

// A second tool is a second call of this. Models see name, description and parameters, and read what it returns.
ext.tool("TOOL_NAME", "Count the words of a text.", { text: "string: The text to look at" }, ({ text }) => {
  const words = text.split(/\s+/).filter(Boolean);
  if (words.length === 0) throw new Failed("there is no text to count");
  return `words: ${words.length}`;
});

ext.run();
