// Numbers, times and states in words.
import type { Word } from "./shapes";

export function count(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

export function duration(ms: number): string {
  if (ms < 1) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function seconds(s: number): string {
  if (s < 60) return `${Math.max(0, Math.round(s))} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.round((s % 86_400) / 3600)} h`;
}

export const ago = (at: number, now: number) => `${seconds(now / 1000 - at)} ago`;

const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const day = (at: number) => DAY.format(at * 1000);
export const clock = (at: number) => CLOCK.format(at * 1000);
export function moment(at: number): string {
  const isToday = new Date(at * 1000).toDateString() === new Date().toDateString();
  return isToday ? clock(at) : `${day(at)}, ${clock(at)}`;
}

/** A sign: a shape, a word, and the name of its colour. Nothing is said by colour alone. */
export type Sign = readonly [shape: string, word: string, tone: string];

const RISKS: Record<string, Sign> = {
  reads: ["○", "reads", "muted"],
  changes_files: ["▲", "changes files", "warn"],
  uses_the_network: ["▲", "uses the network", "warn"],
  runs_programs: ["▲", "runs programs", "warn"],
  acts_on_the_agent: ["▲", "acts on the agent", "warn"],
  not_sandboxed: ["■", "not sandboxed", "risk"],
};
export const riskSign = (risk: string): Sign => RISKS[risk] ?? ["▲", risk.replaceAll("_", " "), "warn"];

const STATES: Record<string, Sign> = {
  approved: ["✓", "approved", "ok"],
  new: ["?", "new", "ask"],
  changed: ["?", "changed", "ask"],
  denied: ["✗", "denied", "risk"],
  disabled: ["–", "disabled", "muted"],
  broken: ["!", "broken", "risk"],
  shadowed: ["–", "shadowed", "muted"],
};
export const stateSign = (state: string): Sign => STATES[state] ?? ["–", state, "muted"];

const HEALTHS: Record<string, Sign> = {
  running: ["●", "running", "accent"],
  idle: ["○", "idle", "muted"],
  restarting: ["!", "restarting", "warn"],
  given_up: ["!", "given up", "risk"],
};
export const healthSign = (health: string): Sign => HEALTHS[health] ?? ["○", health, "muted"];

const REFUSED = new Set(["denied", "not_approved", "disabled", "not_enforceable", "needs_answer"]);
export function outcomeSign(outcome: string): Sign {
  if (outcome === "done") return ["✓", "done", "ok"];
  if (outcome === "cancelled") return ["–", "cancelled", "muted"];
  if (!outcome || outcome === "running") return ["●", "running", "accent"];
  if (outcome === "waiting") return ["?", "waiting", "ask"];
  if (REFUSED.has(outcome)) return ["✗", outcome.replaceAll("_", " "), "risk"];
  if (outcome === "tool_error") return ["!", "failed", "risk"];
  return ["!", outcome.replaceAll("_", " "), "risk"];
}

export function decisionSign(decision: string): Sign {
  if (decision === "allow" || decision === "allowed") return ["✓", decision, "ok"];
  if (decision === "ask") return ["?", "ask", "ask"];
  if (decision === "modify") return ["▲", "modify", "warn"];
  return ["✗", decision, "risk"];
}

export const ANSWERED: Record<Word | "withdrawn", string> = {
  once: "Allowed once",
  attachment: "Allowed for this caller",
  always: "Always allowed",
  no: "Not allowed",
  withdrawn: "No longer asked",
};
const PLACES: Record<string, string> = {
  terminal: "in the terminal", cli: "in the terminal", chat: "in the chat", console: "in the console",
  mcp: "in the agent", api: "over the API", host: "by the host",
};
export const place = (by: string) => PLACES[by] ?? (by ? `by ${by}` : "");

const FORMATS: Record<string, string> = {
  cyclop: "Cyclop One", zot: "zot", stavrobot: "Stavrobot", workbench: "Workbench", mcp: "MCP", builtin: "built in",
};
export const format = (name: string) => FORMATS[name] ?? name;
