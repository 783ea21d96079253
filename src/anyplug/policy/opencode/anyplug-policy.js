// anyplug-policy: the policy gate for OpenCode's own tools. `anyplug connect opencode --policy` puts this file here.
//
// Every tool call becomes an event, and the answer to it is a decision:
//
//     {"hook_event_name": "PreToolUse", "session_id", "cwd", "tool", "args", "call_id", "agent"?, "mcp"?}
//     {"hook_event_name": "PostToolUse", …, "result": {"success", "output"?, "error"?, "exit_code"?}}
//     {"hook_event_name": "UserPromptSubmit", "session_id", "cwd", "prompt"}    what a person types; to anyplug only
//     {"decision": "allow" | "deny" | "block" | "ask", "reason"?, "context"?, "updated_input"?, "rule_id"?, …}
//
// It is asked of the resident host, over its socket, one JSON object a line:
//
//     {"attach": 1, "kind": "policy", "cwd", "environment"}                → {"attached"}
//     {"id", "do": "eval", "harness", "project", "event", "cache"}         → {"id", "result" | "error"}
//     result: {"exit", "decision", "said": [lines]}
//
// While no host is up, one is started, and `anyplug eval --harness opencode` answers: event on stdin, decision on
// stdout. Whatever goes wrong on the way denies the call, unless `failMode` is "open".

import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const INSTALLED = {}; // what `anyplug connect` knows: {"version", "home", "program": [words]}

const NAME = 'anyplug-policy.js';
const LEVELS = ['debug', 'info', 'warn', 'error'];
const DEFAULTS = {
  enabled: true,
  cupcakePath: 'anyplug',
  harness: 'opencode',
  logLevel: 'info',
  timeoutMs: 5000,
  failMode: 'closed',
  cacheDecisions: false,
  showToasts: true,
  toastDurationMs: 5000,
};
const VALID = {
  enabled: (value) => typeof value === 'boolean',
  cupcakePath: (value) => typeof value === 'string' && value !== '',
  harness: (value) => typeof value === 'string' && value !== '',
  logLevel: (value) => LEVELS.includes(value),
  timeoutMs: (value) => typeof value === 'number' && value > 0 && value <= 0x7fffffff, // timers take no more
  failMode: (value) => value === 'open' || value === 'closed',
  cacheDecisions: (value) => typeof value === 'boolean',
  showToasts: (value) => typeof value === 'boolean',
  toastDurationMs: (value) => typeof value === 'number' && value > 0,
};
const TOOL_NAMES = {
  bash: 'Bash',
  edit: 'Edit',
  write: 'Write',
  read: 'Read',
  grep: 'Grep',
  glob: 'Glob',
  list: 'List',
  patch: 'Patch',
  todowrite: 'TodoWrite',
  todoread: 'TodoRead',
  webfetch: 'WebFetch',
  task: 'Task',
};
// Names that no MCP server is looked up for.
const OWN_TOOLS = new Set([...Object.keys(TOOL_NAMES), 'apply_patch', 'websearch', 'skill', 'question', 'lsp']);

const APPROVAL = 'policy_approval'; // the tool through which OpenCode's permission dialog is opened
const NOTE =
  'Note: This operation requires manual approval. To proceed, review the policy and temporarily disable it if ' +
  'appropriate, then re-run the command.';
const CUT = 2000; // characters of raw output in a message
const SUMMARY = 300; // characters of a call that the dialog shows
const MOST_OUTPUT = 8 * 1024 * 1024; // characters of one answer; more is no decision
const CONNECT_MS = 500; // a host that is up answers in a few; the rest of the time is for the process
const AVOID_MS = 5000; // how long a host that did not answer is left alone
const START_MS = 30000; // between two attempts to start a host
const REPLY_MS = 2000; // the event of a reply follows the reply at once
const SERVERS_MS = 500; // for the names of MCP servers, which only adorn an event
const KEPT = 1000; // entries of each table; the oldest go first

const now = () => performance.now();
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const textOf = (error) => (error instanceof Error ? error.message : String(error));

// Evaluation gave no decision: timeout, unusable answer, a program that failed.
class Failure extends Error {
  constructor(message, title = 'Policy Error') {
    super(message);
    this.title = title;
  }
}

// There is no host to talk to; the process answers instead.
class Unreachable extends Error {}

// ------------------------------------------------------------------------------------------------------- configuration

// The folder whose `.cupcake` counts: the nearest, from where OpenCode runs up to the root of the repository.
function findProject(directory, worktree) {
  const folders = worktree && worktree !== path.parse(directory).root ? upwards(directory, worktree) : [directory];
  return folders.find(hasPolicies) ?? directory;
}

// Also policies that a person accepted and that are gone now: the host keeps a copy, which still decides.
function hasPolicies(folder) {
  if (fs.existsSync(path.join(folder, '.cupcake'))) return true;
  try {
    const key = createHash('sha256').update(fs.realpathSync(folder)).digest('hex').slice(0, 32);
    return fs.existsSync(path.join(findHome(), 'accepted', key));
  } catch {
    return false;
  }
}

function upwards(directory, last) {
  const folders = [directory];
  let folder = directory;
  while (folder !== last && path.dirname(folder) !== folder) {
    folder = path.dirname(folder);
    folders.push(folder);
  }
  return folders;
}

// Never throws: what cannot be understood is said, and the default holds.
function readConfig(project) {
  const file = path.join(project, '.cupcake', 'opencode.json');
  let given = {};
  try {
    given = JSON.parse(fs.readFileSync(file, 'utf8'));
    if (!isObject(given)) throw new Error('it is no JSON object');
  } catch (error) {
    if (error.code !== 'ENOENT') {
      say('warn', `Failed to load config from ${file}: ${textOf(error)}`);
      say('warn', 'Using default configuration');
    }
    given = {};
  }
  const config = { ...DEFAULTS, ...given, isProgramGiven: typeof given.cupcakePath === 'string' };
  for (const [key, isValid] of Object.entries(VALID)) {
    if (!isValid(config[key])) {
      say('warn', `${file}: ${key} cannot be ${JSON.stringify(config[key])}; using ${JSON.stringify(DEFAULTS[key])}`);
      config[key] = DEFAULTS[key];
    }
  }
  return config;
}

function say(level, text) {
  console.error(`[cupcake-plugin] ${level.toUpperCase()}: ${text}`);
}

// JSON as people write it: a blank after each colon and comma.
function spaced(value) {
  if (Array.isArray(value)) return `[${value.map(spaced).join(', ')}]`;
  if (!isObject(value)) return JSON.stringify(value) ?? 'null';
  const pairs = Object.entries(value).filter(([, item]) => item !== undefined);
  return `{${pairs.map(([key, item]) => `${JSON.stringify(key)}: ${spaced(item)}`).join(', ')}}`;
}

// The same text for the same value, whatever the order of its keys.
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value) ?? 'null';
  const keys = Object.keys(value).filter((key) => value[key] !== undefined);
  return `{${keys.sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(',')}}`;
}

function keep(table, key, value) {
  table.set(key, value);
  if (table.size > KEPT) table.delete(table.keys().next().value);
}

// ------------------------------------------------------------------------------------------ the two ways to a decision

function findHome() {
  const given = process.env.ANYPLUG_HOME || INSTALLED.home;
  if (given) return path.resolve(given.replace(/^~(?=$|\/)/, os.homedir()));
  if (process.platform === 'darwin') return path.join(os.homedir(), 'Library', 'Application Support', 'anyplug');
  if (process.platform === 'win32') return path.join(process.env.LOCALAPPDATA || os.homedir(), 'anyplug');
  return path.join(process.env.XDG_DATA_HOME || path.join(os.homedir(), '.local', 'share'), 'anyplug');
}

// The words that start the program, and whether it is anyplug, so that a resident host can answer in its place. The
// name that Cupcake's guide gives, `cupcake`, is anyplug where no such program is installed.
function findProgram(config, log) {
  let name = config.cupcakePath;
  if (name === 'cupcake' && !isInPath(name)) {
    log('info', "There is no program 'cupcake' in the PATH, so anyplug decides in its place");
    name = 'anyplug';
  }
  const isOurs = path.basename(name) === 'anyplug';
  const isKnown = !config.isProgramGiven || name === 'anyplug';
  const installed = INSTALLED.program ?? [];
  const words = isKnown && installed.length > 0 && fs.existsSync(installed[0]) ? installed : [name];
  return { words, isOurs };
}

function isInPath(name) {
  const suffixes = process.platform === 'win32' ? ['.exe', '.cmd', '.bat', ''] : [''];
  const folders = (process.env.PATH ?? '').split(path.delimiter).filter(Boolean);
  return folders.some((folder) => suffixes.some((suffix) => fs.existsSync(path.join(folder, name + suffix))));
}

// One connection to the resident host: kept open, made anew when it breaks, shared by all calls under way.
class Resident {
  constructor(home, words, directory) {
    this.home = home;
    this.words = words;
    this.directory = directory;
    this.count = 0;
    this.line = null; // a promise of {socket, waiting, heardAt}
    this.avoidUntil = 0;
    this.startedAt = -Infinity;
  }

  // Raises Unreachable where the process should be asked instead.
  async ask(message, deadline) {
    const line = await within(deadline, this.reach());
    if (line.socket.destroyed) throw new Unreachable('it has gone');
    const id = ++this.count;
    const sent = now();
    const answer = new Promise((resolve, reject) => line.waiting.set(id, { resolve, reject }));
    line.socket.ref();
    line.socket.write(`${JSON.stringify({ id, ...message })}\n`);
    try {
      return await within(deadline, answer);
    } catch (error) {
      // Silent all that time: it hangs, and waiting for it again would cost as much again.
      if (error instanceof TimedOut && line.heardAt < sent) {
        this.avoidUntil = now() + AVOID_MS;
        line.socket.destroy();
      }
      throw error;
    } finally {
      line.waiting.delete(id);
      if (line.waiting.size === 0) line.socket.unref();
    }
  }

  // The line that is open, or a new one.
  reach() {
    if (now() < this.avoidUntil) throw new Unreachable('it did not answer a moment ago');
    if (this.line) return this.line;
    const line = this.connect(() => forget());
    const forget = () => {
      if (this.line === line) this.line = null;
    };
    this.line = line;
    line.catch(forget);
    return line;
  }

  connect(ended) {
    const where = this.find();
    return new Promise((resolve, reject) => {
      const line = { socket: net.createConnection({ path: where }), waiting: new Map(), heardAt: 0 };
      const { socket, waiting } = line;
      const fail = (error) => {
        clearTimeout(timer);
        ended();
        socket.destroy();
        for (const waiter of waiting.values()) waiter.reject(error);
        reject(error);
      };
      const timer = setTimeout(() => {
        this.avoidUntil = now() + AVOID_MS;
        fail(new Unreachable('it does not answer'));
      }, CONNECT_MS);
      const hear = (text) => {
        if (parsed(text)?.attached === undefined) return fail(new Unreachable(`it refuses: ${text.slice(0, CUT)}`));
        clearTimeout(timer);
        socket.unref();
        receive = (answer) => answered(waiting, answer);
        resolve(line);
      };
      let receive = hear; // the first line, then the others
      let rest = '';
      socket.setEncoding('utf8');
      socket.on('connect', () => {
        const attach = { attach: 1, kind: 'policy', cwd: this.directory, environment: { ...process.env } };
        socket.write(`${JSON.stringify(attach)}\n`);
      });
      socket.on('data', (text) => {
        line.heardAt = now();
        const texts = (rest + text).split('\n');
        rest = texts.pop();
        for (const one of texts) receive(one);
        if (rest.length > MOST_OUTPUT) fail(new Unreachable('its answer has no end'));
      });
      socket.on('error', (error) => fail(new Unreachable(textOf(error))));
      socket.on('close', () => fail(new Unreachable('it has gone')));
    });
  }

  find() {
    let socket;
    try {
      socket = JSON.parse(fs.readFileSync(path.join(this.home, 'resident.json'), 'utf8')).socket;
      if (process.getuid && fs.statSync(socket).uid !== process.getuid()) throw new Error('it is another user’s');
    } catch (error) {
      throw new Unreachable(textOf(error));
    }
    return socket;
  }

  // In the background: this decision does not wait for it.
  start() {
    if (now() - this.startedAt < START_MS) return;
    this.startedAt = now();
    try {
      const [program, ...words] = this.words;
      const options = { cwd: this.directory, stdio: 'ignore', detached: true, env: environment(this.home) };
      const child = spawn(program, [...words, 'serve', '--detach'], options);
      child.on('error', () => {}); // the process that decides meanwhile says what is wrong
      child.unref();
    } catch {
      // as above
    }
  }

  close() {
    this.line?.then(({ socket }) => socket.destroy()).catch(() => {});
  }
}

class TimedOut extends Error {}

function within(deadline, promise) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new TimedOut()), Math.max(1, deadline - now()));
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

// Hands one line of the host to whom it answers.
function answered(waiting, line) {
  const answer = parsed(line);
  if (!isObject(answer)) {
    // It is not known whose answer it was.
    for (const waiter of waiting.values()) waiter.reject(unreadable('it is no JSON object', line));
    return;
  }
  const waiter = waiting.get(answer.id);
  if (!waiter) return; // its call has timed out
  if (isObject(answer.error)) {
    const { message, hint } = answer.error;
    waiter.reject(new Failure(`${message ?? 'the resident host failed'}${hint ? `\nhint: ${hint}` : ''}`));
  } else if (isObject(answer.result)) waiter.resolve(answer.result);
  else waiter.reject(unreadable('it has no result', line));
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function environment(home) {
  return { ...process.env, ANYPLUG_HOME: home };
}

function unreadable(why, raw) {
  return new Failure(`Policy evaluation gave no valid JSON: ${why}\n\nRaw output:\n${raw.slice(0, CUT)}`);
}

function exited(code, said) {
  const tail = said.trim().slice(-CUT);
  return new Failure(`Cupcake exited with code ${code}${tail ? `\n\n${tail}` : ''}`);
}

// Runs the program once; gives what it printed. Raises TimedOut, after which nothing of it is left.
function run([program, ...words], cwd, env, input, deadline) {
  return new Promise((resolve, reject) => {
    const cure = 'Set cupcakePath in .cupcake/opencode.json to where it is.';
    const cannot = (error) => reject(new Failure(`Cannot start ${program}: ${textOf(error)}\n${cure}`));
    let child;
    try {
      // A group of its own, so that what the program has started ends with it.
      child = spawn(program, words, { cwd, env, stdio: 'pipe', detached: process.platform !== 'win32' });
    } catch (error) {
      return cannot(error);
    }
    const out = [];
    const err = [];
    let size = 0;
    const end = () => {
      try {
        if (process.platform === 'win32') child.kill('SIGKILL');
        else process.kill(-child.pid, 'SIGKILL');
      } catch {
        // it has ended by itself
      }
      for (const stream of [child.stdout, child.stderr, child.stdin]) stream.destroy();
    };
    const timer = setTimeout(() => {
      end();
      reject(new TimedOut());
    }, Math.max(1, deadline - now()));
    child.on('error', (error) => {
      clearTimeout(timer);
      cannot(error);
    });
    child.stdout.on('data', (bytes) => {
      out.push(bytes);
      size += bytes.length;
      if (size > MOST_OUTPUT) end();
    });
    child.stderr.on('data', (bytes) => {
      err.push(bytes);
      if (err.length > KEPT) err.shift();
    });
    child.stdin.on('error', () => {}); // it need not read what it was given
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      resolve({ code: code ?? signal, out: Buffer.concat(out).toString(), err: Buffer.concat(err).toString() });
    });
    child.stdin.end(input);
  });
}

// Asks one of the two, and gives the decision as it came. Raises Failure.
class Evaluator {
  constructor(config, project, directory, log) {
    this.config = config;
    this.project = project;
    this.log = log;
    this.home = findHome();
    this.program = findProgram(config, log);
    this.resident = this.program.isOurs ? new Resident(this.home, this.program.words, directory) : null;
  }

  async evaluate(event) {
    const deadline = now() + this.config.timeoutMs;
    try {
      return (await this.askResident(event, deadline)) ?? (await this.askProcess(event, deadline));
    } catch (error) {
      if (!(error instanceof TimedOut)) throw error;
      const limit = `Policy evaluation timed out after ${this.config.timeoutMs}ms.`;
      throw new Failure(`${limit} Consider optimizing policies or increasing timeout.`);
    }
  }

  // Before the first call there is time to connect, or to start a host.
  async warm() {
    try {
      await this.resident?.reach();
    } catch {
      this.resident.start();
    }
  }

  async askResident(event, deadline) {
    if (!this.resident) return undefined;
    try {
      const { harness, cacheDecisions } = this.config;
      // Only the host may keep decisions: it alone knows what they depend on, and when a policy or a path changes.
      const message = { do: 'eval', harness, project: this.project, event, cache: cacheDecisions };
      const { exit, decision, said } = await this.resident.ask(message, deadline);
      const lines = Array.isArray(said) ? said : [];
      if (exit) throw exited(exit, lines.join('\n'));
      for (const line of lines) this.log('debug', line);
      if (!isObject(decision)) throw unreadable('it is no JSON object', JSON.stringify(decision ?? null));
      return decision;
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      this.log('debug', `No resident host (${textOf(error)}); asking a process`);
      this.resident.start();
      return undefined;
    }
  }

  async askProcess(event, deadline) {
    const words = [...this.program.words, 'eval', '--harness', this.config.harness];
    const env = this.program.isOurs ? environment(this.home) : process.env;
    const { code, out, err } = await run(words, this.project, env, JSON.stringify(event), deadline);
    if (code !== 0) throw exited(code, err);
    for (const line of err.split('\n').filter(Boolean)) this.log('debug', line);
    let decision;
    try {
      decision = JSON.parse(out);
    } catch (error) {
      throw unreadable(textOf(error), out);
    }
    if (!isObject(decision)) throw unreadable('it is no JSON object', out);
    return decision;
  }
}

// ------------------------------------------------------------------------------------------------------------ approval

// `ask`: a plugin cannot open OpenCode's permission dialog from a hook, but a tool of a plugin can. So the refused call
// names a request, the model calls this tool with it, the dialog opens, and the repeated call passes. That the person
// was asked, and said yes, is taken from OpenCode's own events and from nothing else.
class Approvals {
  constructor() {
    this.isPossible = false;
    this.requests = new Map(); // id → {session, call, summary, tool, args, reason}
    this.asked = new Map(); // id of OpenCode's request → id of the tool call that asked
    this.replies = new Map(); // id of the tool call → "once" | "always" | "reject"
    this.once = new Map();
    this.always = new Map();
    this.listeners = new Set();
  }

  // OpenCode allows tools of plugins without a question unless a rule says otherwise, and the last rule wins.
  arrange(config) {
    const holders = [config, ...Object.values(config.agent ?? {}), ...Object.values(config.mode ?? {})];
    const rulesOf = (holder) => (isObject(holder?.permission) ? Object.keys(holder.permission) : []);
    const isSet = (holder) => rulesOf(holder).some((key) => key.startsWith(APPROVAL));
    if (holders.some(isSet)) return; // the person has decided about it; it works if that is "ask"
    for (const holder of holders) {
      if (!isObject(holder) || (holder !== config && holder.permission === undefined)) continue;
      const rules = typeof holder.permission === 'string' ? { '*': holder.permission } : holder.permission;
      holder.permission = { ...rules, [`${APPROVAL}*`]: 'ask' };
    }
    this.isPossible = true;
  }

  isGiven(session, call) {
    return this.always.has(call) || this.once.delete(`${session} ${call}`);
  }

  // By its name alone another tool could pass for ours.
  isRequest(session, args) {
    return isObject(args) && Object.keys(args).length === 1 && this.requests.get(args.request)?.session === session;
  }

  request(session, call, tool, args, reason) {
    const id = randomBytes(4).toString('hex');
    const what = typeof args?.command === 'string' ? args.command : (args?.filePath ?? canonical(args));
    const summary = `${tool}: ${what} (${reason})`.replace(/\s+/g, ' ').slice(0, SUMMARY);
    keep(this.requests, id, { session, call, tool, args, reason, summary });
    return id;
  }

  hear({ type, properties }) {
    if (type === 'permission.asked' && String(properties.permission).startsWith(APPROVAL)) {
      if (properties.tool?.callID) keep(this.asked, properties.id, `${properties.sessionID} ${properties.tool.callID}`);
    } else if (type === 'permission.replied' && this.asked.has(properties.requestID)) {
      keep(this.replies, this.asked.get(properties.requestID), properties.reply);
      for (const listener of this.listeners) listener();
    }
  }

  async reply(call) {
    const until = now() + REPLY_MS;
    while (!this.replies.has(call) && now() < until) {
      await new Promise((resolve) => {
        const timer = setTimeout(done, until - now());
        const { listeners } = this;
        function done() {
          clearTimeout(timer);
          listeners.delete(done);
          resolve();
        }
        listeners.add(done);
      });
    }
    const reply = this.replies.get(call);
    this.replies.delete(call);
    return reply;
  }

  tool() {
    return {
      description:
        'Ask the person to approve a call that a policy holds back. Use it only with a request id from an ' +
        '"Approval Required" error. If they approve, repeat the held call unchanged.',
      args: { request: { type: 'string', description: 'The request id from the error.' } },
      execute: async ({ request }, context) => {
        const held = this.requests.get(request);
        if (held?.session !== context.sessionID) throw new Error(`No call is held under ${JSON.stringify(request)}.`);
        const { tool, args, reason, summary } = held;
        const permission = `${APPROVAL}: ${summary}`; // the name is what the dialog shows
        const metadata = { tool, input: args, reason };
        await context.ask({ permission, patterns: [summary], always: [summary], metadata });
        const reply = await this.reply(`${context.sessionID} ${context.callID}`);
        if (reply === 'always') keep(this.always, held.call, true);
        else if (reply === 'once') keep(this.once, `${held.session} ${held.call}`, true);
        else throw new Error(approvalText(reason, NOTE));
        this.requests.delete(request);
        return 'The person approved it. Repeat the call unchanged.';
      },
    };
  }
}

function approvalText(reason, then) {
  return `⚠️  Approval Required\n\n${reason}\n\n${then}`;
}

function violationText(reason) {
  return `❌ Policy Violation\n\n${reason}`;
}

function reasonOf({ reason, rule_id: rule, severity }) {
  const facts = [rule && `Rule: ${rule}`, severity && `Severity: ${severity}`].filter(Boolean);
  return `${reason || 'Operation blocked by policy'}${facts.length > 0 ? `\n(${facts.join(', ')})` : ''}`;
}

// ---------------------------------------------------------------------------------------------------------------- gate

class Gate {
  constructor({ client, directory }, config, project) {
    this.client = client;
    this.config = config;
    this.directory = directory;
    this.evaluator = new Evaluator(config, project, directory, this.log.bind(this));
    this.approvals = new Approvals();
    this.contexts = new Map(); // of calls under way, and of those that failed
    this.agents = new Map(); // of each session
    this.servers = new Map(); // tool → {server, tool} | null
  }

  log(level, text) {
    if (LEVELS.indexOf(level) >= LEVELS.indexOf(this.config.logLevel)) say(level, text);
  }

  toast(title, message, variant) {
    if (this.config.showToasts) showToast(this.client, title, message, variant, this.config.toastDurationMs);
  }

  async event(kind, { tool, sessionID, callID }, args, result) {
    const event = { hook_event_name: kind, session_id: sessionID ?? 'unknown', cwd: this.directory, tool };
    event.args = args ?? {};
    if (callID) event.call_id = callID;
    const agent = this.agents.get(sessionID);
    if (agent) event.agent = agent;
    const mcp = await this.server(tool);
    if (mcp) event.mcp = mcp;
    if (result) event.result = result;
    return event;
  }

  // Of an MCP server's tool OpenCode gives one joined name; policies get its parts.
  async server(tool) {
    if (OWN_TOOLS.has(tool) || !tool.includes('_')) return null;
    if (!this.servers.has(tool)) keep(this.servers, tool, await findServer(this.client, tool));
    return this.servers.get(tool);
  }

  // Gives a decision; raises what refuses the call.
  async judge(event) {
    this.log('debug', `Evaluating ${event.hook_event_name} event`);
    if (event.tool) this.log('debug', `Tool: ${TOOL_NAMES[event.tool] ?? event.tool}, Args: ${spaced(event.args)}`);
    try {
      const decision = known(await this.evaluator.evaluate(event));
      this.log('debug', `Response: ${spaced(decision)}`);
      return decision;
    } catch (error) {
      if (this.config.failMode === 'open') {
        this.log('error', textOf(error));
        this.log('warn', 'Allowing operation in fail-open mode.');
        return { decision: 'allow' };
      }
      this.toast(error.title ?? 'Policy Error', textOf(error), 'error');
      this.complain(textOf(error));
      throw error;
    }
  }

  // Said on the terminal once for each reason: of a refused prompt OpenCode shows only that there was an error.
  complain(text) {
    if (text !== this.complaint) this.log('error', text);
    this.complaint = text;
  }

  async before(input, output) {
    if (input.tool === APPROVAL && this.approvals.isRequest(input.sessionID, output.args)) return;
    const decision = await this.judge(await this.event('PreToolUse', input, output.args));
    if (decision.decision === 'deny') this.deny(decision);
    if (decision.decision === 'ask') this.ask(input, output.args, decision);
    // In place: OpenCode runs the object that it gave, and not what `output.args` refers to afterwards.
    if (isObject(output.args)) Object.assign(output.args, decision.updated_input);
    else if (decision.updated_input) this.deny({ reason: 'The arguments cannot be modified: they are no object' });
    const context = contextOf(decision);
    if (context) keep(this.contexts, `${input.sessionID} ${input.callID}`, context);
  }

  deny(decision) {
    const reason = reasonOf(decision);
    this.toast('Policy Violation', reason, 'error');
    throw new Error(violationText(reason));
  }

  ask({ tool, sessionID }, args, decision) {
    const call = `${tool} ${canonical(args)}`;
    if (this.approvals.isGiven(sessionID, call)) return;
    const reason = reasonOf(decision);
    this.toast('Approval Required', reason, 'warning');
    if (!this.approvals.isPossible) throw new Error(approvalText(reason, NOTE));
    const request = this.approvals.request(sessionID, call, tool, structuredClone(args), reason);
    const how = `To ask the person, call the tool ${APPROVAL} with {"request": "${request}"}.`;
    throw new Error(approvalText(reason, `${how} If they approve, repeat this call unchanged.`));
  }

  async after(input, output) {
    const key = `${input.sessionID} ${input.callID}`;
    const context = this.contexts.get(key);
    this.contexts.delete(key);
    const decision = await this.judge(await this.event('PostToolUse', input, input.args, resultOf(output)));
    if (decision.decision === 'deny') this.deny(decision); // it has run; what it gave does not reach the model
    if (context) tell(output, context);
    if (contextOf(decision)) tell(output, contextOf(decision));
    if (decision.decision === 'ask') {
      this.toast('Approval Required', reasonOf(decision), 'warning');
      tell(output, approvalText(reasonOf(decision), 'The tool has run already.'));
    }
  }

  // A prompt: other programs than ours know no such event, and would refuse it.
  async prompted({ sessionID }, { message, parts }) {
    if (!this.evaluator.program.isOurs) return;
    const texts = parts.filter((part) => part.type === 'text' && !part.synthetic);
    const prompt = texts.map((part) => part.text).join('\n');
    const event = { hook_event_name: 'UserPromptSubmit', session_id: sessionID, cwd: this.directory, prompt };
    const decision = await this.judge(event);
    if (decision.decision === 'deny' || decision.decision === 'ask') this.complain(`Prompt refused: ${reasonOf(decision)}`);
    if (decision.decision === 'deny') this.deny(decision);
    if (decision.decision === 'ask') throw new Error(approvalText(reasonOf(decision), NOTE));
    const text = contextOf(decision);
    if (!text || parts.length === 0) return;
    const id = `${parts.at(-1).id}0`; // parts are sorted by their ids
    parts.push({ id, messageID: message.id, sessionID, type: 'text', synthetic: true, text });
  }

  // Of a call that failed there is no `after`: its context is put beside the error, each time it is sent.
  remind(messages) {
    for (const part of messages.flatMap((message) => message.parts)) {
      if (part.type !== 'tool' || part.state?.status !== 'error') continue;
      const context = this.contexts.get(`${part.sessionID} ${part.callID}`);
      if (context) part.state.error = `${part.state.error}\n\n${context}`;
    }
  }

  hooks() {
    return {
      config: async (config) => this.approvals.arrange(config),
      event: async ({ event }) => this.approvals.hear(event),
      tool: { [APPROVAL]: this.approvals.tool() },
      'chat.params': async ({ sessionID, agent }) => {
        if (typeof agent === 'string' && agent !== 'title') keep(this.agents, sessionID, agent);
      },
      'chat.message': (input, output) => this.prompted(input, output),
      'tool.execute.before': (input, output) => this.before(input, output),
      'tool.execute.after': (input, output) => this.after(input, output),
      'experimental.chat.messages.transform': async (_input, { messages }) => this.remind(messages),
    };
  }

  close() {
    this.evaluator.resident?.close();
  }
}

const MEANINGS = { allow: 'allow', modify: 'allow', deny: 'deny', block: 'deny', halt: 'deny', ask: 'ask' };

function known(decision) {
  const meaning = typeof decision.decision === 'string' && Object.hasOwn(MEANINGS, decision.decision);
  if (!meaning) throw new Failure(`Policy returned unknown decision: ${decision.decision}`, 'Unknown Decision');
  const changes = decision.updated_input;
  if (changes !== undefined && !isObject(changes)) throw new Failure('Policy returned arguments that are no object');
  return { ...decision, decision: MEANINGS[decision.decision] };
}

function contextOf({ context }) {
  const lines = (Array.isArray(context) ? context : [context]).filter((line) => typeof line === 'string' && line);
  return lines.length > 0 ? `Policy context:\n${lines.join('\n')}` : '';
}

// OpenCode's own tools give {title, output, metadata}; an MCP server's give what the server sent.
function resultOf(output) {
  if (Array.isArray(output?.content)) {
    const text = output.content.filter((block) => block.type === 'text').map((block) => block.text);
    const said = text.join('\n');
    return output.isError ? { success: false, output: said, error: said } : { success: true, output: said };
  }
  const result = { success: true, output: String(output?.output ?? '') };
  const code = output?.metadata?.exit;
  return typeof code === 'number' ? { ...result, success: code === 0, exit_code: code } : result;
}

function tell(output, text) {
  if (Array.isArray(output.content)) output.content.push({ type: 'text', text });
  else output.output = `${output.output ?? ''}\n\n${text}`;
}

async function findServer(client, tool) {
  try {
    const late = new Promise((resolve) => setTimeout(resolve, SERVERS_MS).unref?.());
    const names = Object.keys((await Promise.race([client.mcp.status(), late]))?.data ?? {});
    const prefix = (name) => `${name.replace(/[^a-zA-Z0-9_-]/g, '_')}_`;
    const fits = names.filter((name) => tool.startsWith(prefix(name))).sort((a, b) => b.length - a.length);
    return fits.length > 0 ? { server: fits[0], tool: tool.slice(prefix(fits[0]).length) } : null;
  } catch {
    return null; // the event goes without
  }
}

// Nobody waits for it, and where there is no screen it does not matter.
function showToast(client, title, message, variant, duration) {
  try {
    Promise.resolve(client.tui.showToast({ body: { title, message, variant, duration } })).catch(() => {});
  } catch {
    // as above
  }
}

// ---------------------------------------------------------------------------------------------------- which copy gates

// Which copy has started, for each folder that OpenCode serves: all copies share one JavaScript world.
const CLAIMS = (globalThis[Symbol.for('anyplug.policy.claims')] ??= new Map());

// The copies of the project, nearest first; OpenCode loads them all.
function copies(directory, worktree) {
  return upwards(directory, worktree || directory)
    .flatMap((folder) => ['plugin', 'plugins'].map((name) => path.join(folder, '.opencode', name, NAME)))
    .filter((file) => fs.existsSync(file))
    .map((file) => fs.realpathSync(file));
}

// A copy for all projects stands down where a project has its own, but only once that has really started.
function standBy(gate, directory, own) {
  const isMine = () => {
    const gating = CLAIMS.get(directory);
    if (gating !== undefined) return gating === own;
    gate.log('warn', `The project's own copy did not start; ${own} gates in its place`);
    CLAIMS.set(directory, own);
    return true;
  };
  // Without the tool for approvals: two of one name would hide each other.
  return {
    'tool.execute.before': async (input, output) => (isMine() ? gate.before(input, output) : undefined),
    'tool.execute.after': async (input, output) => (isMine() ? gate.after(input, output) : undefined),
    dispose: async () => gate.close(),
  };
}

// Every call is refused, with the reason, rather than let through by a gate that is not there.
function refuse({ client }, config, error) {
  const text = `The policy gate could not start: ${textOf(error)}`;
  const isOpen = config.failMode === 'open';
  say('error', text);
  if (isOpen) say('warn', 'Allowing operation in fail-open mode.');
  const show = () => showToast(client, 'Policy Error', text, 'error', config.toastDurationMs);
  show();
  return {
    'tool.execute.before': async () => {
      show();
      if (!isOpen) throw new Error(`${text}\n\nNo tool runs until this is mended: see \`anyplug doctor\`.`);
    },
  };
}

export const AnyplugPolicy = async (input) => {
  let config = DEFAULTS;
  try {
    const { directory, worktree } = input;
    const own = fs.realpathSync(fileURLToPath(import.meta.url));
    const project = findProject(directory, worktree);
    const found = copies(directory, worktree);
    config = readConfig(project);
    const isForAll = !found.includes(own);
    const isGoverned = hasPolicies(project) || fs.existsSync(globalPolicies());
    if (!config.enabled || (isForAll && !isGoverned)) {
      if (!isForAll) CLAIMS.set(directory, own);
      return {};
    }
    const gate = new Gate(input, config, project);
    if (found.length > 0 && found[0] !== own) return standBy(gate, directory, own);
    CLAIMS.set(directory, own);
    gate.evaluator.warm();
    const release = async () => {
      if (CLAIMS.get(directory) === own) CLAIMS.delete(directory);
      gate.close();
    };
    return { ...gate.hooks(), dispose: release };
  } catch (error) {
    return refuse(input, config, error);
  }
};

function globalPolicies() {
  const base = process.platform === 'darwin' ? ['Library', 'Application Support'] : ['.config'];
  return path.join(process.env.XDG_CONFIG_HOME || path.join(os.homedir(), ...base), 'cupcake');
}
