// A conversation as its events tell it. Pure: each event makes the next state from the last.
import type { CallResult, Failure, Panel, Question } from "../base/shapes";
import { panelKey } from "../base/live";

export type ChatEvent = { type: string } & Record<string, unknown>;

export type Entry = { key: string } & (
  | { kind: "user"; text: string; plugin: string }
  | { kind: "assistant"; text: string; turn: number; isWhole: boolean; changedBy: string; withheld: string; held: string }
  | { kind: "tool"; call: string; tool: string; plugin: string; arguments: Record<string, unknown>; progress: string; result: CallResult | null; verdict: string; record: number }
  | { kind: "question"; question: Question; answer: string; by: string }
  | { kind: "line"; level: string; text: string; hint: string }
);

export interface Talk {
  title: string; model: string; tools: number; plugins: number; usage: string; isBusy: boolean; queued: string[];
  entries: Entry[]; panels: Map<string, Panel>; count: number;
}

export const emptyTalk: Talk = { title: "", model: "", tools: 0, plugins: 0, usage: "", isBusy: false, queued: [], entries: [], panels: new Map(), count: 0 };

type Of<K extends Entry["kind"]> = Extract<Entry, { kind: K }>;
type Keyless<T> = T extends unknown ? Omit<T, "key"> : never;

const text = (value: unknown) => (typeof value === "string" ? value : "");

function added(talk: Talk, entry: Keyless<Entry>): Talk {
  return { ...talk, count: talk.count + 1, entries: [...talk.entries, { ...entry, key: `e${talk.count}` } as Entry] };
}

function changedLast<K extends Entry["kind"]>(talk: Talk, kind: K, fits: (entry: Of<K>) => boolean, change: (entry: Of<K>) => Of<K>): Talk | null {
  for (let index = talk.entries.length - 1; index >= 0; index--) {
    const entry = talk.entries[index]!;
    if (entry.kind === kind && fits(entry as Of<K>)) {
      const entries = [...talk.entries];
      entries[index] = change(entry as Of<K>);
      return { ...talk, entries };
    }
  }
  return null;
}

function assistant(talk: Talk, turn: number, change: (entry: Of<"assistant">) => Of<"assistant">): Talk {
  const last = talk.entries.at(-1);
  if (last?.kind === "assistant" && last.turn === turn && !last.isWhole) return changedLast(talk, "assistant", (entry) => entry === last, change)!;
  const made = added(talk, { kind: "assistant", text: "", turn, isWhole: false, changedBy: "", withheld: "", held: "" });
  return changedLast(made, "assistant", () => true, change)!;
}

const line = (talk: Talk, level: string, said: string, hint = "") => added(talk, { kind: "line", level, text: said, hint });

export function heard(talk: Talk, event: ChatEvent): Talk {
  const turn = Number(event.turn ?? 0);
  switch (event.type) {
    case "opened": return { ...talk, title: text(event.title) || talk.title, model: text(event.model), tools: Number(event.tools ?? 0), plugins: Number(event.plugins ?? 0) };
    case "user": {
      const next = added(talk, { kind: "user", text: text(event.text), plugin: text(event.plugin) });
      return { ...next, title: talk.title || text(event.text).slice(0, 60) };
    }
    case "queued": return { ...talk, queued: (event.texts as string[]) ?? [] };
    case "turn_started": return { ...talk, isBusy: true };
    case "text": return assistant(talk, turn, (entry) => ({ ...entry, text: entry.text + text(event.text) }));
    case "held": return assistant(talk, turn, (entry) => ({ ...entry, held: `held for review${event.by ? ` by ${text(event.by)}` : ""}, ${Number(event.characters).toLocaleString("en")} characters` }));
    case "assistant": return assistant(talk, turn, (entry) => ({ ...entry, text: text(event.text), held: "", isWhole: true, changedBy: text(event.changed_by), withheld: text(event.withheld) }));
    case "tool_started": return added(talk, { kind: "tool", call: text(event.call), tool: text(event.tool), plugin: text(event.plugin), arguments: (event.arguments as Record<string, unknown>) ?? {}, progress: "", result: null, verdict: "", record: 0 });
    case "tool_progress": return changedLast(talk, "tool", (entry) => entry.call === event.call, (entry) => ({ ...entry, progress: text(event.message) || `${event.progress}${event.total ? ` of ${event.total}` : ""}` })) ?? talk;
    case "tool_ended": return changedLast(talk, "tool", (entry) => entry.call === event.call, (entry) => ({ ...entry, result: event.result as CallResult, verdict: text(event.verdict), record: Number(event.record ?? 0) })) ?? talk;
    case "asked": return added(talk, { kind: "question", question: asked(event.question as Question), answer: "", by: "" });
    case "answered": return changedLast(talk, "question", (entry) => entry.question.id === event.question, (entry) => ({ ...entry, answer: text(event.answer), by: text(event.by) })) ?? talk;
    case "note": { const note = event.note as { plugin: string; level: string; message: string }; return line(talk, note.level, `[${note.plugin}] ${note.message}`); }
    case "status": return line(talk, text(event.level), text(event.text), text(event.hint));
    case "compacted": return line(talk, "info", `${event.messages} older messages were summarised`);
    case "plugin_found": return line(talk, "info", `${text(event.plugin)} waits for its approval`);
    case "tools_changed": return { ...talk, tools: Number(event.tools), plugins: Number(event.plugins) };
    case "panel": {
      const panel = event.panel as Panel;
      const next = new Map(talk.panels);
      if (panel.is_open) next.set(panelKey(panel), panel);
      else next.delete(panelKey(panel));
      return { ...talk, panels: next };
    }
    case "command": {
      const outcome = event.outcome as { display: string; error: Failure | null };
      if (outcome.error) return line(talk, "error", outcome.error.message, outcome.error.hint);
      return outcome.display ? line(talk, "info", outcome.display) : talk;
    }
    case "usage": return { ...talk, usage: usage(event) };
    case "turn_ended": {
      const next = { ...talk, isBusy: false };  // if it ended badly, a status has said so
      return event.stop === "cancelled" ? line(next, "info", "cancelled") : next;
    }
    default: return talk;
  }
}

function usage(event: ChatEvent): string {
  const tokens = Number(event.input_tokens ?? 0) + Number(event.output_tokens ?? 0);
  const parts = [tokens ? `${tokens.toLocaleString("en")} tokens` : "", event.cost_usd == null ? "" : `$${Number(event.cost_usd).toFixed(2)}`];
  return parts.filter(Boolean).join(", ");
}

/** A conversation's own question has fewer fields than one of the questions bar. */
function asked(question: Question): Question {
  return { ...question, permission_texts: question.permission_texts ?? question.permissions ?? [], risk: question.risk ?? [], words: question.words ?? [], callers: question.callers ?? [], kind: question.kind ?? "chat" };
}
