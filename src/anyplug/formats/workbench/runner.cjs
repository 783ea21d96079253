// One Workbench plugin in a Node process of its own. `peer.py` starts it and is at the other end.
//
//     node runner.cjs '{"folder", "pluginsDir", "searched": [folders of node_modules], "limit", "frame"}'
//
// JSON lines, in on descriptor 3, out on descriptor 4; stdout and stderr belong to the plugin and go to its log.
//
//     in    call {id, tool, input}     ping {id}     reloaded {id}: all reloads up to this one are done
//     out   tool {name, description, schema}     problem {message}     then ready, or failed {message, hint}
//           result {id, content, metadata, error, extra, warnings}     pong {id}     reload {id}

'use strict';

const fs = require('node:fs');
const Module = require('node:module');
const net = require('node:net');
const path = require('node:path');
const vm = require('node:vm');
const { pathToFileURL } = require('node:url');

const options = JSON.parse(process.argv[2]);
process.argv.length = 2; // a plugin sees the program alone

const IN = 3;
const OUT = 4;
const INDEX = path.join(options.folder, 'index.js');
const MOST_CAUSES = 5; // of an error, each that of the one before
const DEEPEST = 200; // levels of nesting that the other end is given

// What a plugin may replace, and we go on using.
const { parse, stringify } = JSON;
const { writeSync } = fs;
const { byteLength, from } = Buffer;
const write = process.stderr.write.bind(process.stderr);
const exit = process.exit.bind(process);

const tools = new Map();
let reloads = []; // {id, resolve}: what to call when the host has read everything again
let reloadCount = 0;

// ---------------------------------------------------------------------------------------------------------- frames

function send(frame) {
  sendLine(encode(frame));
}

function sendLine(line) {
  const bytes = from(`${line}\n`);
  let sent = 0;
  while (sent < bytes.length) {
    try {
      sent += writeSync(OUT, bytes, sent);
    } catch (error) {
      if (error.code !== 'EAGAIN') exit(0); // the host is gone
      nap();
    }
  }
}

const alarm = new Int32Array(new SharedArrayBuffer(4));

function nap() {
  Atomics.wait(alarm, 0, 0, 1);
}

// JSON that the other end can read: no lone surrogates, no abysses. Throws for what is no JSON.
function encode(value) {
  const line = stringify(value);
  return line.includes('\\ud') || isDeep(line) ? stringify(cleaned(value, [])) : line;
}

function isDeep(line) {
  if (line.length < 2 * DEEPEST) return false;
  let depth = 0;
  for (let at = 0; at < line.length; at++) {
    const sign = line.charCodeAt(at) | 32; // makes a curly bracket of a square one
    if (sign === 123) depth++;
    else if (sign === 125) depth--;
    if (depth > DEEPEST) return true;
  }
  return false;
}

// A copy with a word in place of whatever is no JSON, and a warning for each kind.
function cleaned(value, warnings, above = []) {
  const warned = (kind, word) => {
    const warning = `the plugin's answer holds ${kind}, which is no JSON; it was replaced by a word`;
    if (!warnings.includes(warning)) warnings.push(warning);
    return word;
  };
  if (typeof value === 'string') return value.toWellFormed();
  if (typeof value === 'bigint') return warned('a BigInt', String(value));
  if (typeof value === 'function') return warned('a function', `[function ${value.name}]`);
  if (typeof value === 'symbol') return warned('a symbol', String(value));
  if (value === null || typeof value !== 'object') return value;
  if (above.includes(value)) return warned('a cycle', '[circular]');
  if (above.length >= DEEPEST) return warned(`more than ${DEEPEST} levels`, '[too deep]');
  if (typeof value.toJSON === 'function') return cleaned(value.toJSON(), warnings, [...above, value]);
  if (Array.isArray(value)) return value.map((item) => cleaned(item, warnings, [...above, value]));
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(entries.map(([key, item]) => [key.toWellFormed(), cleaned(item, warnings, [...above, value])]));
}

function receive(frame) {
  if (frame.type === 'call') call(frame);
  else if (frame.type === 'ping') send({ type: 'pong', id: frame.id });
  else if (frame.type === 'reloaded') {
    const done = reloads.filter(({ id }) => id <= frame.id);
    reloads = reloads.filter(({ id }) => id > frame.id);
    for (const { resolve } of done) resolve();
  }
}

function listen() {
  const host = new net.Socket({ fd: IN, readable: true, writable: false });
  let rest = '';
  host.setEncoding('utf8');
  host.on('data', (text) => {
    let start = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', start)) {
      const line = rest + text.slice(start, end);
      rest = '';
      start = end + 1;
      receive(parse(line));
    }
    rest += text.slice(start);
  });
  host.on('close', () => exit(0)); // whoever started us is gone
  host.on('error', () => exit(0));
}

// --------------------------------------------------------------------------------------------------------- answers

const calling = new Set(); // the warnings of running calls

// What the stand-in for Electron has to say belongs to whatever runs, and otherwise into the log.
globalThis[Symbol.for('anyplug.note')] = (text) => {
  for (const warnings of calling) if (!warnings.includes(text)) warnings.push(text);
  if (!calling.size) write(`${text}\n`);
};

async function call({ id, tool: name, input }) {
  const warnings = [];
  let answer;
  calling.add(warnings);
  try {
    const tool = tools.get(name);
    if (tool === undefined) throw new Error(`Tool not found: ${name}`);
    answer = bounded(normalised(await tool.run(input), warnings));
  } catch (thrown) {
    answer = failure(name, input, thrown);
  }
  calling.delete(warnings);
  sendLine(asLine({ type: 'result', id, ...answer, warnings }));
}

// What Workbench makes of an answer, in its order: content wins over error, and an error that is falsy is none.
function normalised(output, warnings) {
  if (output && typeof output === 'object' && 'content' in output) {
    const { content, metadata, error, ...extra } = output;
    if (isNoJson(output.content)) warnings.push(`the plugin answered with a content that is ${nameOf(output.content)}`);
    return { content: output.content, metadata: output.metadata, error: output.error ? shown(output.error) : undefined, extra };
  }
  if (typeof output === 'string') return { content: output };
  if (output && output.error) {
    const { error } = output;
    return { content: output.message || shown(error), metadata: output, error: typeof error === 'string' ? error : describe(error) };
  }
  const content = stringify(output, null, 2);
  if (content === undefined) {
    warnings.push(`the plugin answered with ${output === undefined ? 'nothing' : nameOf(output)}`);
    return { content: '' };
  }
  return { content, metadata: output };
}

// What JSON leaves out without a word.
function isNoJson(value) {
  return value === undefined || typeof value === 'function' || typeof value === 'symbol';
}

function nameOf(value) {
  if (value === undefined) return 'undefined';
  return isNoJson(value) ? `a ${typeof value}` : 'something that is no JSON';
}

// An Error has no JSON; its message says what it is.
function shown(error) {
  return error instanceof Error ? describe(error) : error;
}

function bounded(answer) {
  const content = asShown(answer.content);
  const length = sizeOf(content);
  if (typeof answer.error === 'string') answer.error = first(answer.error, options.limit);
  if (length <= options.limit) return answer;
  const suffix = `\n\n[Output truncated - exceeded ${options.limit} character limit]`;
  const { metadata = {} } = answer;
  const kept = metadata && typeof metadata === 'object' && !Array.isArray(metadata) ? metadata : { value: metadata };
  return {
    ...answer,
    content: Array.isArray(content) ? [...firstBlocks(content), { type: 'text', text: suffix.trim() }] : first(content, options.limit) + suffix,
    metadata: { ...kept, truncated: true, originalSize: length },
  };
}

// Content that is neither text nor list is shown as JSON.
function asShown(content) {
  if (!content || typeof content !== 'object' || Array.isArray(content)) return content;
  try {
    return stringify(content);
  } catch {
    return content; // what is in there is replaced later
  }
}

function sizeOf(content) {
  if (typeof content === 'string') return content.length;
  if (!Array.isArray(content)) return 0;
  return content.reduce((sum, block) => sum + (textOf(block)?.length ?? 0), 0);
}

function textOf(block) {
  if (typeof block === 'string') return block;
  return typeof block?.text === 'string' ? block.text : undefined;
}

function firstBlocks(blocks) {
  let room = options.limit;
  const kept = [];
  for (const block of blocks) {
    const text = textOf(block);
    if (text === undefined) kept.push(block);
    else if (room > 0) kept.push(block === text ? first(text, room) : { ...block, text: first(text, room) });
    room -= text?.length ?? 0;
  }
  return kept;
}

function first(text, length) {
  if (text.length <= length) return text;
  return text.slice(0, length).replace(/[\ud800-\udbff]$/, ''); // never half a character
}

function failure(name, input, thrown) {
  const message = describe(thrown);
  write(`${name}: ${traceOf(thrown)}\n`);
  const metadata = { tool: name, input, timestamp: new Date().toISOString() };
  return bounded({ content: `Tool error: ${message}`, error: message, metadata });
}

function describe(thrown) {
  try {
    if (typeof thrown?.message === 'string' && thrown.message) return thrown.message;
    if (Array.isArray(thrown?.errors) && thrown.errors.length) return thrown.errors.map((one) => one?.message || String(one)).join('; ');
    if (thrown instanceof Error) return thrown.name;
    if (thrown && typeof thrown === 'object') return stringify(thrown) ?? String(thrown);
    return String(thrown);
  } catch {
    return 'it threw something that cannot be shown';
  }
}

function traceOf(thrown) {
  try {
    if (thrown instanceof Error && thrown.stack) return [thrown.stack, ...causesOf(thrown)].join('\n');
  } catch {
    // not even that can be read of it
  }
  return describe(thrown);
}

// Often only they say what went wrong: that of `fetch failed` does.
function causesOf(error) {
  const said = [];
  for (let { cause } = error; cause && said.length < MOST_CAUSES; { cause } = cause) said.push(`caused by: ${describe(cause)}`);
  return said;
}

// The line for an answer, whatever is in it; what is too large for the other end is left out, metadata first.
function asLine(answer) {
  let line;
  try {
    line = encode(answer);
  } catch {
    try {
      const { warnings, ...rest } = answer;
      line = stringify({ ...cleaned(rest, warnings), warnings });
    } catch (error) {
      const why = `the answer cannot be written as JSON: ${describe(error)}`;
      line = stringify({ type: 'result', id: answer.id, content: `Tool error: ${why}`, error: why });
    }
  }
  const size = byteLength(line);
  if (size <= options.frame) return line;
  const { truncated, originalSize } = answer.metadata ?? {};
  const slim = { type: 'result', id: answer.id, content: answer.content, error: answer.error };
  if (truncated) slim.metadata = { truncated, originalSize };
  slim.warnings = [`the plugin's answer has ${size} bytes; its metadata was left out`];
  const shorter = stringify(cleaned(slim, []));
  if (byteLength(shorter) <= options.frame) return shorter;
  return stringify({ type: 'result', id: answer.id, too_large: size });
}

// --------------------------------------------------------------------------------------------------------- loading

const api = {
  registerTool(tool) {
    const refused = unusable(tool);
    if (refused) {
      send({ type: 'problem', message: refused });
      return;
    }
    if (tools.has(tool.name)) {
      send({ type: 'problem', message: `it registered the tool '${tool.name}' twice; the last one counts` });
    }
    try {
      tool._sourceFolder = path.basename(options.folder);
    } catch {
      // a frozen object
    }
    tools.set(tool.name, tool);
    send({ type: 'tool', name: tool.name, description: descriptionOf(tool), schema: schemaOf(tool) });
  },
  getPluginsDir: () => options.pluginsDir,
  reloadPlugins() {
    const id = ++reloadCount;
    return new Promise((resolve) => {
      reloads.push({ id, resolve });
      send({ type: 'reload', id });
    });
  },
};

// Streams make their descriptors non-blocking, and writing to these past the streams then fails when nobody has read
// for a moment. A terminal is never that full, so plugins do not expect it.
function letPluginsPrint() {
  fs.writeSync = (fd, ...rest) => {
    for (;;) {
      try {
        return writeSync(fd, ...rest);
      } catch (error) {
        if (error.code !== 'EAGAIN' || (fd !== 1 && fd !== 2)) throw error;
        nap();
      }
    }
  };
  Module.syncBuiltinESMExports();
}

function unusable(tool) {
  if (!tool || (typeof tool !== 'object' && typeof tool !== 'function')) return 'registerTool was called without a tool';
  if (typeof tool.name !== 'string' || tool.name.trim() === '') return 'a tool without a name was skipped';
  if (/[\p{Cc}\p{Cs}]/u.test(tool.name)) return 'a tool whose name holds control characters was skipped';
  if (typeof tool.run !== 'function') return `the tool '${tool.name}' has no run function and was skipped`;
  return '';
}

function descriptionOf(tool) {
  return typeof tool.description === 'string' ? tool.description : '';
}

function schemaOf(tool) {
  const schema = tool.inputSchema;
  if (schema === undefined || schema === null) return null;
  try {
    const read = parse(stringify(schema)); // a toJSON may make anything of it
    if (read && typeof read === 'object' && !Array.isArray(read)) return read;
  } catch {
    // said below
  }
  const message = `the inputSchema of '${tool.name}' is no JSON Schema like { type: "object" }; its arguments are not checked`;
  send({ type: 'problem', message });
  return null;
}

// A folder that has no package.json is CommonJS, whatever the folders above it say.
function loadAsCommonJs() {
  const usual = Module._extensions['.js'];
  const inside = options.folder + path.sep;
  Module._extensions['.js'] = (module, filename) => {
    if (!filename.startsWith(inside) || hasPackage(path.dirname(filename))) return usual(module, filename);
    const source = fs.readFileSync(filename, 'utf8').replace(/^\ufeff/, '').replace(/^#!.*/, '');
    try {
      new vm.Script(Module.wrap(source), { filename });
    } catch {
      return usual(module, filename); // an ES module, or an error that Node explains better
    }
    return module._compile(source, filename);
  };
}

function hasPackage(folder) {
  for (let at = folder; at.startsWith(options.folder); at = path.dirname(at)) {
    if (fs.existsSync(path.join(at, 'package.json'))) return true;
  }
  return false;
}

// `electron`, and the modules of the folders from which a link led here.
function helpResolving(source) {
  const load = Module._load;
  Module._load = function (request, ...rest) {
    return request === 'electron' ? require('./electron.cjs') : load.call(this, request, ...rest);
  };
  if (options.searched.length) {
    process.env.NODE_PATH = [...options.searched, process.env.NODE_PATH].filter(Boolean).join(path.delimiter);
    Module._initPaths();
  }
  // `import` needs hooks, which cost a thread, so they are there only for those who could need them.
  if (options.searched.length || /\b(import|from)\b[^\n;]*['"]electron['"]/.test(source)) {
    const data = { searched: options.searched, electron: pathToFileURL(path.join(__dirname, 'electron.cjs')).href };
    Module.register('./hooks.mjs', { parentURL: pathToFileURL(__filename).href, data });
  }
}

// An ES module that waits at its top level, or imports what only the hooks find, cannot be required.
const NEED_IMPORT = ['ERR_REQUIRE_ESM', 'ERR_REQUIRE_ASYNC_MODULE', 'ERR_MODULE_NOT_FOUND'];

async function loadModule() {
  try {
    return require(INDEX);
  } catch (error) {
    if (!NEED_IMPORT.includes(error?.code)) throw error;
    return import(pathToFileURL(INDEX).href);
  }
}

// The file that is to be mended: where the error says that it is, else the first of the plugin's own in its trace.
function culprit(error, place) {
  if (/\/package\.json\b/.test(describe(error))) return 'package.json';
  if (place) return place.replace(/:\d+$/, '');
  for (const line of String(error?.stack).split('\n')) {
    const at = line.indexOf(options.folder + path.sep);
    const file = at < 0 ? '' : line.slice(at + options.folder.length + 1).replace(/[:)].*/, '');
    if (file && !file.startsWith('node_modules')) return file;
  }
  return 'index.js';
}

function whyNotLoaded(error) {
  const missing = /^Cannot find (?:module|package) '(@?\w[\w./-]*)'/.exec(describe(error));
  const where = error instanceof SyntaxError ? String(error.stack).split('\n')[0] : '';
  const place = where.includes(':') && path.isAbsolute(where) ? path.relative(options.folder, where) : '';
  let hint = `fix ${culprit(error, place)}`;
  if (missing) hint = `run \`npm install ${missing[1]}\` in ${options.folder}, and approve it again`;
  // The errors of Node for `export` and `import` in CommonJS.
  if (where && /^Unexpected token 'export'|^Cannot use import statement/.test(describe(error))) {
    hint += ': CommonJS has module.exports.register = (api) => { ... } and require() in place of export and import';
  }
  return {
    message: `index.js cannot be loaded: ${describe(error).split('\n')[0]}${place && ` (${place})`}`,
    hint,
  };
}

async function main() {
  process.on('uncaughtException', (error) => write(`uncaught: ${traceOf(error)}\n`));
  process.on('unhandledRejection', (error) => write(`unhandled rejection: ${traceOf(error)}\n`));
  listen();
  letPluginsPrint();
  let plugin;
  try {
    loadAsCommonJs();
    helpResolving(fs.readFileSync(INDEX, 'utf8'));
    plugin = await loadModule();
  } catch (error) {
    write(`${traceOf(error)}\n`);
    send({ type: 'failed', ...whyNotLoaded(error) });
    return;
  }
  if (typeof plugin?.register !== 'function') {
    send({ type: 'failed', message: 'index.js exports no register function', hint: 'write module.exports.register = (api) => { ... }' });
    return;
  }
  try {
    await plugin.register(api);
  } catch (error) {
    write(`register: ${traceOf(error)}\n`);
    const rest = tools.size ? '; the tools that it had registered by then work' : '';
    send({ type: 'problem', message: `register failed: ${describe(error)}${rest}` });
  }
  if (!tools.size) send({ type: 'problem', message: 'it registered no tools; it has to call api.registerTool' });
  send({ type: 'ready' });
}

main();
