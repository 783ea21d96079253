// SPDX-License-Identifier: Apache-2.0
/**
 * Write extensions for zot and anyplug in JavaScript or TypeScript: tools, slash commands, panels, notes, events, guards.
 *
 *     import { Extension } from "./anyplug-ext.mjs";
 *
 *     const ext = new Extension("weather", { version: "1.0.0" });
 *     ext.tool("forecast", "Return the forecast for a city.", { city: "string", days: "integer?" },
 *       async ({ city, days = 3 }) => `${city}: sun for ${days} days`);
 *     ext.run();
 *
 * This file needs only Node 18. Copy it next to your extension to ship it; its types are in its comments, which editors
 * and TypeScript read. A tool's parameters are a short form as above, a JSON Schema, or a Zod object.
 *
 * Every function may be async. Calls run side by side; events are handled one after another, and so are panels' keys.
 * console.log goes to the log: stdout belongs to the host.
 *
 * @typedef {{type: "text", text: string} | {type: "image", mime_type: string, data: string}} Block
 * @typedef {{[key: string]: any}} Frame
 * @typedef {{content: Block[], is_error?: boolean, structured?: any, activate_tools?: string[]}} Result
 * @typedef {{signal: AbortSignal, callTool: (name: string, args?: Frame) => Promise<Result & {text: string}>}} Context
 * @typedef {{blocked: boolean, reason: string, value?: any}} Verdict
 * @typedef {{action: string, text: string}} Reply
 */

import { Console } from "node:console";
import { createInterface } from "node:readline";

export const SDK_VERSION = 1;
const PROTOCOL_VERSION = 1;
const FRAME_BYTES = 4 * 1024 * 1024; // zot stops listening to an extension that sends a longer line
const CALL_TOOL_MS = 60_000; // zot's limit for a tool that an extension calls
const STIR_MS = 100; // between keep-alives during onStart: after 0.25 s of silence zot assumes that all is registered
const LEAVE_MS = 500; // for handlers to end after a shutdown; zot sends SIGTERM 2 s after it
const ERROR_CHARS = 500; // of an exception: the model needs the point, the log has the rest
const NAME = /^[A-Za-z0-9_-]{1,64}$/; // accepted by zot as a command, and by models as a tool
// For each intercepted event: the field that a guard sees, the field for its rewrite, and their type.
const GUARDED = {
  tool_call: ["tool_args", "modified_args", "object"],
  turn_start: ["step", "", "number"],
  assistant_message: ["text", "replace_text", "string"],
  before_agent_start: ["system_prompt", "system_prompt", "string"],
};

/** Throw in a tool, a command or a guard to answer with this error, without a traceback in the log. */
export class Failed extends Error {}

/** Refuse; the model (for a tool call) or the user sees the reason. @param {string} reason @returns {Verdict} */
export const block = (reason) => ({ blocked: true, reason });

/** Allow with other arguments, or another text. @param {any} value @param {string} [reason] @returns {Verdict} */
export const rewrite = (value, reason = "") => ({ blocked: false, reason, value });

/** Answers of commands. @param {string} text @returns {Reply} */
export const prompt = (text) => ({ action: "prompt", text });
/** @param {string} text @returns {Reply} */
export const insert = (text) => ({ action: "insert", text });
/** @param {string} text @returns {Reply} */
export const display = (text) => ({ action: "display", text });
/** @returns {Reply} */
export const noop = () => ({ action: "noop", text: "" });

/** An image that a tool returns. @param {Uint8Array} data @param {string} [mimeType] @returns {Block} */
export const image = (data, mimeType = "image/png") => ({
  type: "image",
  mime_type: mimeType,
  data: Buffer.from(data).toString("base64"),
});

/** A panel that the extension draws: change `title`, `lines` or `footer`, then `render`. */
export class Panel {
  /** @param {(frame: Frame) => void} send @param {string} id @param {{title?: string, lines?: string | string[], footer?: string}} face */
  constructor(send, id, { title = "", lines = [], footer = "" } = {}) {
    this.id = id;
    this.title = title;
    /** @type {string | string[]} */
    this.lines = lines;
    this.footer = footer;
    this.isOpen = false;
    /** Called with each key; `text` is the character if the key is "rune". @type {(key: string, text: string) => any} */
    this.onKey = () => {};
    /** Called when the user closes the panel. @type {() => any} */
    this.onClose = () => {};
    this._send = send;
  }

  /** Show it. */
  open() {
    this.isOpen = true;
    this._send({ type: "open_panel", panel: { id: this.id, ...this._face() } });
  }

  /** Send its current content; do nothing while it is closed. */
  render() {
    if (this.isOpen) this._send({ type: "panel_render", panel_id: this.id, ...this._face() });
  }

  /** Close it. */
  close() {
    if (this.isOpen) this._send({ type: "panel_close", panel_id: this.id });
    this.isOpen = false;
  }

  _face() {
    const lines = typeof this.lines === "string" ? this.lines.split("\n") : this.lines;
    return { title: String(this.title), lines: lines.map(String), footer: String(this.footer) };
  }
}

/** An extension: register tools, commands and guards, then `run` it. */
export class Extension {
  /** @param {string} name that of extension.json @param {{version?: string, callsTools?: boolean}} [options] */
  constructor(name, { version = "", callsTools = false } = {}) {
    if (!name) throw new TypeError("an extension needs a name: that of its extension.json");
    this.name = name;
    this.version = version;
    /** What the host says about itself. */
    this.host = { protocol_version: 1, zot_version: "", provider: "", model: "", cwd: "", extension_dir: ".", data_dir: "." };
    this._callsTools = callsTools;
    /** @type {string[]} */
    this._grants = [];
    this._tools = new Map();
    this._commands = new Map();
    this._events = new Map();
    this._guards = new Map();
    this._panels = new Map();
    this._starts = [];
    this._calls = new Map();
    this._asked = new Map();
    this._number = 0;
    this._lane = Promise.resolve();
    /** @type {Frame[] | null} */
    this._early = []; // queued before `run`: nothing may precede the hello
    this._begun = new Promise((resolve) => (this._begin = resolve));
    // Printed output would break the frames, so it goes to the log.
    globalThis.console = new Console(process.stderr, process.stderr);
  }

  /**
   * Register a tool. `parameters` is a short form such as {city: "string: which city", days: "integer?"} (types: string,
   * number, integer, boolean, object, any, with [] for lists; a list of values is a choice), a JSON Schema, or a Zod
   * object. With the first and the last, arguments are checked. It returns text, blocks, any JSON value, or a Result.
   *
   * @param {string} name
   * @param {string} description
   * @param {any} parameters
   * @param {(args: any, context: Context) => any} run
   * @param {{interactive?: boolean, deferred?: boolean, namespace?: string, outputSchema?: Frame}} [options]
   */
  tool(name, description, parameters, run, { interactive, deferred, namespace, outputSchema } = {}) {
    this._check(name, this._tools);
    if (typeof run !== "function") throw new TypeError(`the tool ${name} has no function`);
    if (!description) console.error(`tool ${name} has no description, by which models choose`);
    const { schema, parse } = understood(parameters, name);
    this._tools.set(name, { run, parse });
    this._send({
      type: "register_tool",
      name,
      description,
      schema,
      ...(interactive ? { interactive: true } : {}),
      ...(deferred ? { deferred: true, exposure: "deferred" } : {}), // hosts know one of the two, or neither
      ...(namespace ? { namespace } : {}),
      ...(outputSchema ? { output_schema: outputSchema } : {}),
    });
    return this;
  }

  /**
   * Register a slash command. The function gets the text typed after it, and returns prompt(...), insert(...),
   * display(...), noop(), a Panel to open, a text to display, or nothing.
   *
   * @param {string} name @param {string} description @param {(text: string) => any} run
   */
  command(name, description, run) {
    const known = name.replace(/^\//, "");
    this._check(known, this._commands);
    this._commands.set(known, run);
    this._send({ type: "register_command", name: known, description });
    return this;
  }

  /** Subscribe to an event such as "turn_end". @param {string} event @param {(fields: Frame) => any} run */
  on(event, run) {
    this._add(this._events, event, run);
    return this;
  }

  /** Call a function when the host is known, before any request; registrations in it count from the start. @param {() => any} run */
  onStart(run) {
    this._starts.push(run);
    return this;
  }

  /** Guard every tool call: return nothing, block(reason) or rewrite(args). @param {(name: string, args: Frame) => any} run */
  interceptToolCall(run) {
    return this._guard("tool_call", run);
  }

  /** Guard each request to the model: return nothing or block(reason). @param {(step: number) => any} run */
  interceptTurnStart(run) {
    return this._guard("turn_start", run);
  }

  /** Guard what the user sees: return nothing, block(reason) or rewrite(text). @param {(text: string) => any} run */
  interceptAssistantMessage(run) {
    return this._guard("assistant_message", run);
  }

  /** Change the system prompt: return nothing or rewrite(prompt). @param {(prompt: string) => any} run */
  interceptAgentStart(run) {
    return this._guard("before_agent_start", run);
  }

  /** Create a panel. @param {string} id @param {{title?: string, lines?: string | string[], footer?: string}} [face] */
  panel(id, face = {}) {
    const panel = new Panel((frame) => this._send(frame), id, face);
    this._panels.set(id, panel);
    return panel;
  }

  /** Show the user a note. @param {string} message @param {"info" | "warn" | "error" | "success"} [level] */
  notify(message, level = "info") {
    this._send({ type: "notify", level, message: String(message) });
  }

  /** Remove this extension's notes. */
  clearNotes() {
    this._send({ type: "clear_notes" });
  }

  /** Send a text to the model as if the user had typed it. @param {string} text */
  submit(text) {
    this._send({ type: "submit", text: String(text) });
  }

  /**
   * Run one of the host's tools. In a tool, use its context's `callTool`, which names the calling tool.
   *
   * @param {string} name @param {Frame} [args] @param {{timeoutMs?: number, parent?: string, signal?: AbortSignal}} [options]
   * @returns {Promise<Result & {text: string}>}
   */
  async callTool(name, args = {}, { timeoutMs = CALL_TOOL_MS, parent = "", signal } = {}) {
    if (!this._callsTools) throw new Failed("this extension did not ask for the right: {callsTools: true}");
    if (!this._grants.includes("call_tool")) throw new Failed("this host runs no tools for extensions");
    const id = `ask-${++this._number}`;
    const answer = new Promise((resolve, reject) => {
      this._asked.set(id, resolve);
      const give = (/** @type {string} */ why) => {
        this._send({ type: "call_tool_cancel", id });
        reject(new Failed(why));
      };
      const timer = setTimeout(() => give(`"${name}" did not answer within ${timeoutMs / 1000} s`), timeoutMs);
      timer.unref();
      signal?.addEventListener("abort", () => give(`"${name}" was cancelled`), { once: true });
    });
    this._send({ type: "call_tool", id, name, args, ...(parent ? { parent_id: parent } : {}) });
    try {
      const frame = await answer;
      const content = Array.isArray(frame.content) ? frame.content : [];
      const text = content.filter((part) => part?.type === "text").map((part) => part.text).join("\n");
      if (frame.is_error) throw new Failed(text || `"${name}" failed`);
      return { content, text, structured: frame.structured_content };
    } finally {
      this._asked.delete(id);
    }
  }

  /** Serve the host until it shuts down or disappears. */
  run() {
    if (this._early === null) throw new Error("an extension runs once");
    if (process.stdin.isTTY) console.error(`${this.name} is an extension: zot or anyplug starts it`);
    const early = this._early;
    this._early = null;
    const offers = [
      ...(this._commands.size ? ["commands"] : []),
      ...(this._tools.size ? ["tools"] : []),
      ...(this._events.size || this._guards.size ? ["events"] : []),
      "panels",
      "submit",
      "tool_cancel",
      ...(this._callsTools ? ["call_tool"] : []),
    ];
    this._send({ type: "hello", name: this.name, version: this.version, capabilities: offers });
    early.forEach((frame) => this._send(frame));
    this._subscribe([...this._events.keys()], [...this._guards.keys()]);
    if (!this._starts.length) this._send({ type: "ready" });
    process.stdout.on("error", () => process.exit(0)); // the host is gone
    const lines = createInterface({ input: process.stdin, crlfDelay: Infinity });
    lines.on("line", (line) => this._read(line));
    lines.on("close", () => this._end());
  }

  _read(line) {
    let frame;
    try {
      frame = JSON.parse(line);
    } catch {
      return; // hosts send whole lines; a broken one is none of ours
    }
    if (frame === null || typeof frame !== "object") return;
    if (frame.type === "hello_ack") this._greet(frame);
    else if (frame.type === "shutdown") {
      this._send({ type: "shutdown_ack" });
      this._end();
    } else this._receive(frame);
  }

  _end() {
    for (const call of this._calls.values()) call.abort();
    setTimeout(() => process.exit(process.exitCode ?? 0), this._calls.size ? LEAVE_MS : 0).unref();
    if (!this._calls.size) setImmediate(() => process.exit(process.exitCode ?? 0));
  }

  async _greet(frame) {
    for (const key of Object.keys(this.host)) {
      if (typeof frame[key] === typeof this.host[key]) this.host[key] = frame[key];
    }
    this._grants = Array.isArray(frame.capabilities) ? frame.capabilities : [];
    if (this.host.protocol_version !== PROTOCOL_VERSION) {
      console.error(`the host speaks protocol ${this.host.protocol_version}, not ${PROTOCOL_VERSION}`);
    }
    const starts = this._starts.splice(0);
    const stir = setInterval(() => this._send({ type: "subscribe" }), STIR_MS);
    try {
      if (starts.length) {
        for (const run of starts) await run();
        this._send({ type: "ready" });
      }
      this._begin?.();
    } catch (error) {
      console.error(error);
      process.exit(1);
    } finally {
      clearInterval(stir);
    }
  }

  async _receive(frame) {
    await this._begun;
    const { type, id } = frame;
    if (type === "tool_call" && id) this._answer("tool_result", frame, () => this._runTool(frame));
    else if (type === "tool_cancel") this._calls.get(id)?.abort();
    else if (type === "tool_result") this._asked.get(id)?.(frame);
    else if (type === "command_invoked" && id) this._answer("command_response", frame, () => this._runCommand(frame));
    else if (type === "event_intercept" && id) this._answer("event_intercept_response", frame, () => this._decide(frame));
    else if (type === "event") for (const run of this._events.get(frame.event) ?? []) this._later(() => run(frame));
    else if (type === "panel_key" || type === "panel_close") this._touch(this._panels.get(frame.panel_id), frame);
  }

  async _answer(type, frame, work) {
    try {
      const given = await work();
      if (given !== undefined) this._send({ type, id: frame.id, ...given });
    } catch (error) {
      this._send({ type, id: frame.id, ...this._excuse(type, frame, error) });
    }
  }

  _excuse(type, frame, error) {
    const said = error instanceof Error ? error.message : String(error);
    if (!(error instanceof Failed)) console.error(error);
    const text = (said || "it failed").slice(0, error instanceof Failed ? 100_000 : ERROR_CHARS);
    if (type === "tool_result") return { content: [{ type: "text", text }], is_error: true };
    if (type === "command_response") return { action: "noop", error: text };
    return frame.event === "before_agent_start" ? {} : { block: true, reason: text }; // a guard that fails, blocks
  }

  async _runTool(frame) {
    const tool = this._tools.get(frame.name);
    if (!tool) throw new Failed(`there is no tool "${frame.name}"`);
    const call = new AbortController();
    this._calls.set(frame.id, call);
    try {
      const context = {
        signal: call.signal,
        callTool: (name, args) => this.callTool(name, args, { parent: frame.id, signal: call.signal }),
      };
      const value = await tool.run(tool.parse(frame.args ?? {}), context);
      return call.signal.aborted ? undefined : answer(value); // a cancelled call needs no answer
    } catch (error) {
      if (call.signal.aborted) return undefined;
      throw error;
    } finally {
      this._calls.delete(frame.id);
    }
  }

  async _runCommand(frame) {
    const run = this._commands.get(frame.name);
    if (!run) throw new Failed(`there is no command /${frame.name}`);
    const given = await run(frame.args ?? "");
    if (given instanceof Panel) {
      given.isOpen = true;
      return { action: "open_panel", open_panel: { id: given.id, ...given._face() } };
    }
    const reply = given && typeof given === "object" && "action" in given ? given : given == null ? noop() : display(String(given));
    return { action: reply.action, ...(reply.text ? { [reply.action]: String(reply.text) } : {}) };
  }

  /** Ask the guards in turn: the first block wins, and each sees earlier rewrites. */
  async _decide(frame) {
    const [seen, rewritten, kind] = GUARDED[frame.event] ?? ["", "", ""];
    const empty = { object: {}, number: 0, string: "" }[kind];
    /** @type {Frame} */
    const result = {};
    for (const run of this._guards.get(frame.event) ?? []) {
      const subject = result[rewritten] ?? frame[seen] ?? empty; // zot omits empty fields
      const verdict = await (frame.event === "tool_call" ? run(frame.tool_name, subject) : run(subject));
      if (verdict == null) continue;
      if (typeof verdict !== "object" || typeof verdict.blocked !== "boolean") {
        throw new TypeError("a guard returns nothing, block(...) or rewrite(...)");
      }
      if (verdict.blocked && frame.event === "before_agent_start") throw new TypeError("it cannot be blocked");
      if (verdict.blocked) return { block: true, reason: String(verdict.reason) };
      if (!rewritten || typeof verdict.value !== kind) throw new TypeError(`a guard cannot rewrite a ${frame.event} so`);
      if (frame.event === "assistant_message" && !verdict.value) throw new TypeError("block it instead of emptying it");
      Object.assign(result, { [rewritten]: verdict.value, reason: String(verdict.reason) });
    }
    return result;
  }

  _touch(panel, frame) {
    if (!panel) return;
    if (frame.type === "panel_close") panel.isOpen = false; // now: it may be open again when earlier keys are done
    this._later(() => (frame.type === "panel_key" ? panel.onKey(frame.key, frame.text ?? "") : panel.onClose()));
  }

  /** Run one after the other what needs no answer. */
  _later(work) {
    this._lane = this._lane.then(work).catch((error) => console.error(error instanceof Failed ? error.message : error));
  }

  _guard(event, run) {
    const isNew = !this._guards.has(event);
    this._guards.set(event, [...(this._guards.get(event) ?? []), run]);
    if (isNew) this._subscribe([], [event]);
    return this;
  }

  _add(known, event, run) {
    known.set(event, [...(known.get(event) ?? []), run]);
    this._subscribe([event], []);
  }

  _subscribe(events, intercept) {
    // Registrations before `run` are sent in one frame.
    if (this._early === null && (events.length || intercept.length)) this._send({ type: "subscribe", events, intercept });
  }

  _check(name, known) {
    if (!NAME.test(name)) throw new TypeError(`"${name}" is not a name: use letters, digits, hyphens and underscores`);
    if (known.has(name)) throw new TypeError(`"${name}" is registered twice`);
  }

  _send(frame) {
    if (this._early !== null) {
      this._early.push(frame);
      return;
    }
    const line = `${JSON.stringify(frame)}\n`;
    if (Buffer.byteLength(line) > FRAME_BYTES) throw new RangeError("this is longer than the 4 MiB that hosts take");
    process.stdout.write(line);
  }
}

/** Turn what a tool returned into blocks. */
function answer(value) {
  if (value && typeof value === "object" && Array.isArray(value.content)) {
    const { content, is_error, structured, activate_tools } = value;
    return {
      content,
      ...(is_error ? { is_error: true } : {}),
      ...(structured !== undefined ? { structured_content: structured } : {}),
      ...(activate_tools?.length ? { activate_tools } : {}),
    };
  }
  const isBlock = (part) => part && typeof part === "object" && (part.type === "text" || part.type === "image");
  if (isBlock(value)) return { content: [value] };
  if (Array.isArray(value) && value.length && value.every((part) => typeof part === "string" || isBlock(part))) {
    return { content: value.map((part) => (typeof part === "string" ? { type: "text", text: part } : part)) };
  }
  if (value === undefined || value === null) return { content: [{ type: "text", text: "done" }] };
  if (typeof value === "string") return { content: [{ type: "text", text: value }] };
  return { content: [{ type: "text", text: JSON.stringify(value) }] };
}

/** Read a tool's parameters: the short form, a JSON Schema or a Zod object. */
function understood(parameters, name) {
  if (typeof parameters?.safeParse === "function") {
    const parse = (args) => {
      const read = parameters.safeParse(args);
      if (read.success) return read.data;
      throw new Failed(read.error.issues.map((issue) => `${issue.path.join(".") || "arguments"}: ${issue.message}`).join("; "));
    };
    const schema = fromZod(parameters);
    if (schema.type !== "object") throw new TypeError(`the parameters of ${name} must be a Zod object`);
    return { schema, parse };
  }
  if (parameters?.type === "object" || parameters?.$schema) return { schema: parameters, parse: (args) => args };
  const properties = {};
  const required = [];
  for (const [key, given] of Object.entries(parameters ?? {})) {
    const { schema, optional } = shortForm(given, `${name}.${key}`);
    properties[key] = schema;
    if (!optional) required.push(key);
  }
  const parse = (args) => {
    const faults = required.filter((key) => args[key] === undefined).map((key) => `${key} is missing`);
    for (const [key, value] of Object.entries(args)) {
      const schema = properties[key];
      if (!schema) faults.push(`there is no parameter ${key}`);
      else if (!fits(schema, value)) faults.push(`${key} must be ${schema.enum ? schema.enum.join(" or ") : schema.type}`);
    }
    if (faults.length) throw new Failed(faults.join("; "));
    return args;
  };
  return { schema: { type: "object", properties, ...(required.length ? { required } : {}) }, parse };
}

/** "string: a text", "integer?", "number[]", or a list of choices. */
function shortForm(given, where) {
  if (Array.isArray(given)) return { schema: { type: "string", enum: given }, optional: false };
  const found = /^(string|number|integer|boolean|object|any)(\[\])?(\?)?(?::\s*(.*))?$/s.exec(String(given));
  if (!found) throw new TypeError(`${where}: "${given}" is no type; write "string", "integer?", "number[]: why" or a list`);
  const [, type, list, optional, description] = found;
  const single = type === "any" ? {} : { type };
  const about = description ? { description } : {};
  return { schema: list ? { type: "array", items: single, ...about } : { ...single, ...about }, optional: Boolean(optional) };
}

function fits(schema, value) {
  if (schema.enum) return schema.enum.includes(value);
  if (!schema.type) return true;
  if (schema.type === "array") return Array.isArray(value) && value.every((item) => fits(schema.items, item));
  if (schema.type === "integer") return Number.isInteger(value);
  if (schema.type === "object") return value !== null && typeof value === "object" && !Array.isArray(value);
  return typeof value === schema.type;
}

/** Convert a Zod type of version 3 or 4 to JSON Schema. */
function fromZod(type) {
  if (typeof type.toJSONSchema === "function") {
    const { $schema, ...schema } = type.toJSONSchema({ io: "input", unrepresentable: "any" });
    return schema;
  }
  const def = type._zod?.def ?? type._def ?? type.def ?? {};
  const kind = String(def.typeName ?? def.type ?? "").replace(/^Zod/, "").toLowerCase();
  const description = type.description ? { description: type.description } : {};
  const inner = def.innerType ?? def.schema ?? def.in;
  switch (kind) {
    case "string":
    case "boolean":
      return { type: kind, ...description };
    case "number": {
      const checks = (def.checks ?? []).map((check) => check.kind ?? check._zod?.def?.format ?? check.def?.format);
      return { type: checks.some((check) => /int/.test(String(check))) ? "integer" : "number", ...description };
    }
    case "literal":
      return { enum: def.values ?? [def.value], ...description };
    case "enum":
    case "nativeenum":
      return { enum: Array.isArray(def.values) ? def.values : Object.values(def.entries ?? def.values ?? {}), ...description };
    case "array":
      return { type: "array", items: fromZod(def.element ?? def.type), ...description };
    case "record":
      return { type: "object", additionalProperties: fromZod(def.valueType), ...description };
    case "union":
    case "discriminatedunion":
      return { anyOf: [...(def.options?.values?.() ?? def.options ?? [])].map(fromZod), ...description };
    case "nullable":
      return { anyOf: [fromZod(inner), { type: "null" }], ...description };
    case "object": {
      const shape = typeof def.shape === "function" ? def.shape() : def.shape ?? {};
      const properties = Object.fromEntries(Object.entries(shape).map(([key, value]) => [key, fromZod(value)]));
      const required = Object.keys(shape).filter((key) => !shape[key].isOptional?.());
      return { type: "object", properties, ...(required.length ? { required } : {}), ...description };
    }
    default:
      return inner ? { ...fromZod(inner), ...description } : { ...description };
  }
}
