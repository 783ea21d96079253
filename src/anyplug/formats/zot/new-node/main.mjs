#!/usr/bin/env node
// The extension PLUGIN_NAME, for zot and anyplug: a JSON object on each line, in on stdin, out on stdout.
// What goes to stderr is its log: console.error("..."), then `anyplug -e . logs PLUGIN_NAME`.

import { createInterface } from "node:readline";

// A second tool is a second entry. Models see name, description and schema, and read what `run` gives or throws.
const tools = {
  "TOOL_NAME": {
    description: "Count the words of a text.",
    schema: {
      type: "object",
      properties: { text: { type: "string", description: "The text to look at" } },
      required: ["text"],
    },
    async run({ text = "" }) {
      const words = text.split(/\s+/).filter(Boolean);
      if (words.length === 0) throw new Error("there is no text to count");
      return `words: ${words.length}`;
    },
  },
};

const send = (frame) => process.stdout.write(JSON.stringify(frame) + "\n");

async function call({ id, name, args }) {
  try {
    const text = await tools[name].run(args ?? {});
    send({ type: "tool_result", id, content: [{ type: "text", text }] });
  } catch (error) {
    send({ type: "tool_result", id, content: [{ type: "text", text: error.message }], is_error: true });
  }
}

send({ type: "hello", name: "PLUGIN_NAME", version: "0.1.0", capabilities: ["tools"] });
for (const [name, { description, schema }] of Object.entries(tools)) {
  send({ type: "register_tool", name, description, schema });
}
send({ type: "ready" });

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const frame = JSON.parse(line);
  if (frame.type === "tool_call") {
    call(frame);
  } else if (frame.type === "shutdown") {
    send({ type: "shutdown_ack" });
    lines.close(); // nothing is left to wait for, so Node ends
  }
});
