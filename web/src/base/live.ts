// What happens in the host, as it happens. One tab of each project holds the connection and tells the others, because a
// browser opens only six connections to a server.
import { batch, computed, signal } from "@preact/signals";
import { ApiError, get } from "./api";
import { ofThisTab, project } from "./page_key";
import type {
  Answered, EndedCall, Install, Note, Panel, PluginEntry, Question, RunningCall, Status,
} from "./shapes";

export type Connection = "connecting" | "live" | "offline" | "no_session";

export const connection = signal<Connection>("connecting");
export const isCut = computed(() => connection.value === "offline" || connection.value === "no_session"); // nothing can be done
export const lastHeard = signal(0);
export const status = signal<Status | null>(null);
export const questions = signal<Question[]>([]);
export const answers = signal<Answered[]>([]); // of the last seconds
export const running = signal<Map<string, RunningCall>>(new Map());
export const ended = signal<EndedCall[]>([]); // the newest first
export const panels = signal<Map<string, Panel>>(new Map());
export const notes = signal<(Note & { at: number })[]>([]);
export const found = signal<PluginEntry[]>([]);
export const installs = signal<Map<string, Install>>(new Map());
export const snapshot = signal(0); // grows when plugins or tools changed
export const changed = signal(""); // what changed last, in words
export const recorded = signal(0); // grows when a call ended

const ANSWER_SHOWN_MS = 5000;
const MOST_ENDED = 500;
const MOST_NOTES = 100;
const RETRY_MS = 2000;
const GATHER_MS = 100; // events of busy hosts are shown together
const NAMES = [
  "hello", "reset", "question", "answered", "snapshot", "plugin_found", "call_started", "call_progress", "call_ended",
  "note", "notes_removed", "panel", "install", "chain_step", "submitted",
];

type Heard = { event: string; data: unknown };
const listeners = new Set<(heard: Heard) => void>();
let waiting: Heard[] = [];

/** Register a callback for events that no signal keeps. */
export function onEvent(hear: (heard: Heard) => void): () => void {
  listeners.add(hear);
  return () => listeners.delete(hear);
}

export const panelKey = (panel: { owner: string; id: string }) => `${panel.owner}\n${panel.id}`;

let isFirst = true; // pages fetch by themselves when they are drawn

const readings = new Set<Heard[]>(); // by each reading under way: what happened meanwhile

export async function refetch(): Promise<void> {
  const meanwhile: Heard[] = [];
  readings.add(meanwhile);
  try {
    const [now, open, calls, drawn] = await Promise.all([
      get<Status>("/status"),
      get<{ items: Question[] }>("/questions"),
      get<{ items: RunningCall[] }>("/calls"),
      get<{ items: Panel[] }>("/panels"),
    ]);
    batch(() => {
      status.value = now;
      questions.value = open.items;
      running.value = new Map(calls.items.map((call) => [call.call, call]));
      panels.value = new Map(drawn.items.map((panel) => [panelKey(panel), panel]));
      meanwhile.forEach(apply); // the answers may be older
      if (!isFirst) {
        snapshot.value++;
        recorded.value++;
      }
      isFirst = false;
    });
  } catch (error) {
    isFirst = false; // nor could they
    if (error instanceof ApiError && error.code === "no_session") connection.value = "no_session";
  } finally {
    readings.delete(meanwhile);
  }
}

async function refreshStatus(): Promise<void> {
  try {
    status.value = await get<Status>("/status");
  } catch {
    // the connection says so by itself
  }
}

/** Drop announcements of plugins that a person has decided about, anywhere, or that are gone. */
async function forgetDecided(): Promise<void> {
  for (const plugin of found.value) {
    const now = await get<PluginEntry>(`/plugins/${plugin.id}`).catch((error: ApiError) => (error.code === "not_found" ? null : plugin));
    if (now?.state !== plugin.state) found.value = found.value.filter((one) => one.id !== plugin.id);
  }
}

/** Change what `refetch` reads as an event says; harmless if that was done already. */
function apply({ event, data }: Heard): void {
  switch (event) {
    case "question": {
      const asked = data as Question;
      if (!questions.value.some((one) => one.id === asked.id)) questions.value = [...questions.value, asked];
      break;
    }
    case "answered":
      questions.value = questions.value.filter((question) => question.id !== (data as Answered).id);
      break;
    case "call_started": {
      const call = data as RunningCall;
      running.value = new Map(running.value).set(call.call, call);
      break;
    }
    case "call_progress": {
      const report = data as RunningCall;
      const call = running.value.get(report.call);
      if (call) running.value = new Map(running.value).set(report.call, { ...call, ...report });
      break;
    }
    case "call_ended": {
      const left = new Map(running.value);
      left.delete((data as EndedCall).call);
      running.value = left;
      break;
    }
    case "panel": {
      const panel = data as Panel;
      const next = new Map(panels.value);
      if (panel.is_open) next.set(panelKey(panel), panel);
      else next.delete(panelKey(panel));
      panels.value = next;
      break;
    }
  }
}

function take(heard: Heard): void {
  for (const meanwhile of readings) meanwhile.push(heard);
  apply(heard);
  const { event, data } = heard;
  switch (event) {
    case "answered":
      close(data as Answered);
      break;
    case "snapshot":
      changed.value = (data as { changed?: string }).changed ?? "";
      snapshot.value++;
      void forgetDecided();
      void refreshStatus();
      break;
    case "plugin_found": {
      const plugin = data as PluginEntry;
      found.value = [...found.value.filter((one) => one.id !== plugin.id), plugin];
      snapshot.value++;
      break;
    }
    case "call_ended":
      ended.value = [data as EndedCall, ...ended.value].slice(0, MOST_ENDED);
      recorded.value++;
      break;
    case "note":
      notes.value = [{ ...(data as Note), at: Date.now() }, ...notes.value].slice(0, MOST_NOTES);
      break;
    case "notes_removed":
      notes.value = notes.value.filter((note) => note.plugin !== (data as { plugin: string }).plugin);
      break;
    case "install": {
      const install = data as Install;
      installs.value = new Map(installs.value).set(install.id, install);
      break;
    }
    case "reset":
      void refetch();
      break;
  }
  for (const hear of listeners) hear(heard);
}

/** A question was answered, here or elsewhere: say so for some seconds. */
export function close(answered: Answered): void {
  batch(() => {
    questions.value = questions.value.filter((question) => question.id !== answered.id);
    answers.value = [...answers.value.filter((one) => one.id !== answered.id), answered];
  });
  setTimeout(() => (answers.value = answers.value.filter((one) => one.id !== answered.id)), ANSWER_SHOWN_MS);
}

function deliver(heard: Heard): void {
  lastHeard.value = Date.now();
  if (!waiting.length) {
    setTimeout(() => {
      const together = waiting;
      waiting = [];
      batch(() => together.forEach(take));
    }, GATHER_MS);
  }
  waiting.push(heard);
}

type Said = { kind: "event"; heard: Heard } | { kind: "connection"; is: Connection } | { kind: "who" };

export function connect(): void {
  const channel = `anyplug-events-${project}`;
  const tabs = new BroadcastChannel(channel);
  const say = (said: Said) => tabs.postMessage(said);
  let isLeader = false;

  const set = (is: Connection) => {
    if (is === "live" && connection.value !== "live") void refetch();
    connection.value = is;
    if (isLeader) say({ kind: "connection", is });
  };
  tabs.onmessage = (message: MessageEvent<Said>) => {
    const said = message.data;
    if (said.kind === "event") deliver(said.heard);
    else if (said.kind === "connection" && !isLeader) set(said.is);
    else if (said.kind === "who" && isLeader) {
      // A new page may have brought a new session, which is that of all pages of this project.
      if (connection.value === "no_session") open();
      else say({ kind: "connection", is: connection.value });
    }
  };

  const open = () => {
    const source = new EventSource(ofThisTab("/api/v1/events"));
    source.onopen = () => set("live");
    source.onerror = () => {
      void get<Status>("/status").then(
        () => source.readyState !== EventSource.CLOSED || retry(),
        (error: ApiError) => {
          set(error.code === "no_session" ? "no_session" : "offline");
          if (error.code === "no_session") source.close();
          else if (source.readyState === EventSource.CLOSED) retry();
        },
      );
    };
    const retry = () => setTimeout(open, RETRY_MS);
    for (const name of NAMES) {
      source.addEventListener(name, (event) => {
        const heard = { event: name, data: JSON.parse((event as MessageEvent<string>).data) as unknown };
        deliver(heard);
        say({ kind: "event", heard });
      });
    }
    addEventListener("pagehide", () => source.close());
  };
  const lead = () => {
    isLeader = true;
    open();
  };
  if (navigator.locks) void navigator.locks.request(channel, () => new Promise(() => lead()));
  else lead();
  if (!navigator.locks || connection.value === "connecting") setTimeout(() => isFirst && void refetch(), GATHER_MS);
  say({ kind: "who" });
}
