#!/usr/bin/env node
// An MCP server for the tools in the file that its first argument names. It needs nothing but Node: one JSON message in
// each line, on stdin and stdout. Any MCP client can start it; mcp.json tells anyplug how.

import { createInterface } from "node:readline";

const { server, tools } = await import(new URL(process.argv[2], import.meta.url));

const said = (text, isError = false) => ({ content: [{ type: "text", text }], isError });

const methods = {
  initialize: () => ({ protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: server }),
  ping: () => ({}),
  "tools/list": () => ({
    tools: Object.entries(tools).map(([name, { description, inputSchema }]) => ({ name, description, inputSchema })),
  }),
  async "tools/call"({ name, arguments: given = {} }) {
    if (!Object.hasOwn(tools, name)) return said(`there is no tool ${name}`, true);
    try {
      return said(await tools[name].run(given));
    } catch (error) {
      return said(error.message, true);
    }
  },
};

async function answer({ method, params = {} }) {
  if (Object.hasOwn(methods, method)) return { result: await methods[method](params) };
  return { error: { code: -32601, message: `there is no method ${method}` } };
}

createInterface({ input: process.stdin }).on("line", async (line) => {
  const message = JSON.parse(line);
  if (message.id === undefined || message.method === undefined) return; // a notification, which nobody answers
  console.log(JSON.stringify({ jsonrpc: "2.0", id: message.id, ...(await answer(message)) }));
});
