// Chat: a conversation of a model with your tools. The same conversations as in the terminal.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, post, remove, segment } from "../base/api";
import { isCut, panelKey, panels } from "../base/live";
import { ofThisTab } from "../base/page_key";
import { go, parts } from "../base/route";
import { count, moment } from "../base/say";
import type { SlashCommand } from "../base/shapes";
import { useData } from "../base/use_data";
import { Empty, ErrorBox, Loading, useAction } from "../parts/basics";
import { PanelView } from "../parts/panel_view";
import { EntryView } from "./chat_entries";
import { type ChatEvent, type Talk, emptyTalk, heard } from "./chat_talk";

const NAMES = [
  "opened", "user", "queued", "turn_started", "text", "held", "assistant", "tool_started", "tool_progress", "tool_ended", "asked",
  "answered", "note", "notes_removed", "panel", "command", "status", "usage", "compacted", "tools_changed", "plugin_found", "turn_ended",
];
const GATHER_MS = 50;
const MOST_SHOWN = 8; // commands that fit what is typed

interface Listed { id: string; title: string; model: string; at: number; is_open: boolean }

export function ChatPage() {
  const id = parts()[1] ?? "";
  return id ? <ConversationView key={id} id={id} /> : <Conversations />;
}

function Conversations() {
  const list = useData<{ items: Listed[] }>("/conversations");
  const action = useAction();
  const [model, setModel] = useState("");
  const open = (resume = "") => action.run(async () => {
    const answer = await post<{ id: string }>("/conversations", { ...(model.trim() ? { model: model.trim() } : {}), ...(resume ? { resume } : {}) });
    go(`/chat/${segment(answer.id)}`);
  });
  return (
    <div class="page"><div class="stack">
      <h1 tabIndex={-1} data-start>Chat</h1>
      <form class="card" onSubmit={(event) => { event.preventDefault(); void open(); }}>
        <p>A model that calls your tools, with the same gates and records as your other agents.</p>
        <div class="row nowrap"><input aria-label="Model; empty for the default" placeholder="model: as set, or demo without a key" value={model} spellcheck={false} onInput={(event) => setModel(event.currentTarget.value)} />
          <button class="primary" disabled={action.isBusy}>New chat</button></div>
        {action.error ? <ErrorBox error={action.error} /> : null}
      </form>
      {list.error && !list.value ? <ErrorBox error={list.error} again={list.again} /> : null}
      {!list.value && !list.error ? <Loading what="chats" /> : null}
      {list.value?.items.length ? (
        <ul class="plain-list">{list.value.items.map((one) => (
          <li key={one.id} class="card"><div class="row spread">
            <span><b class="quoted">{one.title || "(nothing said yet)"}</b><br /><span class="muted small-text"><span class="quoted">{one.model}</span>{one.at ? `, ${moment(one.at)}` : ""}{one.is_open ? ", open" : ""}</span></span>
            {one.is_open ? <a class="button small" href={`/chat/${segment(one.id)}`}>Open</a> : <button type="button" class="small" onClick={() => void open(one.id)}>Go on</button>}
          </div></li>
        ))}</ul>
      ) : list.value ? <p class="muted">No chat yet. Chats of the terminal are listed here too.</p> : null}
    </div></div>
  );
}

function useTalk(id: string): { talk: Talk; examples: string[]; error: Error | null } {
  const [talk, setTalk] = useState<Talk>(emptyTalk);
  const [examples, setExamples] = useState<string[]>([]);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    let isOn = true;
    let source: EventSource | null = null;
    let waiting: ChatEvent[] = [];
    let isLoaded = false;
    const flush = () => {
      const together = waiting;
      waiting = [];
      if (isOn) setTalk((old) => together.reduce(heard, old));
    };
    const take = (event: MessageEvent<string>) => {
      waiting.push(JSON.parse(event.data) as ChatEvent);
      if (isLoaded && waiting.length === 1) setTimeout(flush, GATHER_MS);
    };
    get<{ events: ChatEvent[]; after?: string; examples: string[] }>(`/conversations/${segment(id)}`).then((answer) => {
      if (!isOn) return;
      setTalk(answer.events.reduce(heard, emptyTalk));
      setExamples(answer.examples);
      const after = answer.after ? `?after=${segment(answer.after)}` : "";
      source = new EventSource(ofThisTab(`/api/v1/conversations/${segment(id)}/events${after}`));
      for (const name of NAMES) source.addEventListener(name, take as EventListener);
      isLoaded = true;
    }, (failure: Error) => isOn && setError(failure));
    return () => { isOn = false; source?.close(); };
  }, [id]);
  return { talk, examples, error };
}

function ConversationView({ id }: { id: string }) {
  const { talk, examples, error } = useTalk(id);
  const [text, setText] = useState("");
  const isStuck = useRef(true); // to the end: what is added is scrolled to
  const screen = useRef<HTMLDivElement>(null);
  const action = useAction();
  const at = `/conversations/${segment(id)}`;
  useEffect(() => {
    const node = screen.current!;
    const watch = new ResizeObserver(() => { if (isStuck.current) node.scrollTop = node.scrollHeight; });
    watch.observe(node.firstElementChild!);
    return () => watch.disconnect();
  }, []);
  const say = (said: string) => {
    if (!said || isCut.value) return;
    setText("");
    isStuck.current = true;
    void action.run(() => post(`${at}/messages`, { text: said })).then((done) => { if (!done) setText(said); });
  };
  const send = () => say(text.trim());
  const cancel = () => void action.run(() => post(`${at}/cancel`));
  const takeBack = () => void action.run(async () => { const answer = await post<{ text: string }>(`${at}/take-back`); setText(answer.text || text); });
  const commands = useData<{ items: SlashCommand[] }>(`${at}/commands`, talk.tools);
  const [marked, setMarked] = useState(0);
  const known = commands.value?.items ?? [];
  const isWhole = known.some((command) => text === `/${command.name}`);
  const fitting = /^\/[^\s/]*$/.test(text) && !isWhole ? known.filter((command) => `/${command.name}`.startsWith(text)).slice(0, MOST_SHOWN) : [];
  const row = Math.min(marked, fitting.length - 1);
  const write = (written: string) => { setText(written); setMarked(0); };
  const complete = (command: SlashCommand) => write(`/${command.name} `);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (fitting.length && step) { event.preventDefault(); setMarked((row + step + fitting.length) % fitting.length); }
    else if (fitting.length && (event.key === "Tab" || event.key === "Enter") && !event.shiftKey) { event.preventDefault(); complete(fitting[row]!); }
    else if (event.key === "Enter" && !event.shiftKey && !event.altKey && !event.isComposing) { event.preventDefault(); send(); }
    else if (event.key === "Escape" && talk.isBusy) { event.preventDefault(); cancel(); }
  };
  const drawn = [...panels.value.values(), ...[...talk.panels.values()].filter((panel) => !panels.value.has(panelKey(panel)))];
  return (
    <div class="chat">
      <header class="chat-head">
        <div class="row spread"><h1 tabIndex={-1} data-start class="quoted">{talk.title || "Chat"}</h1>
          <span class="row"><a class="button small" href="/chat">All chats</a><button type="button" class="small" onClick={() => void action.run(async () => { await remove(at); go("/chat"); })}>Close</button></span></div>
        <p class="muted small-text"><span class="quoted">{talk.model}</span>{talk.tools ? `, ${count(talk.tools, "tool")} of ${count(talk.plugins, "plugin")}` : ""}{talk.usage ? `, ${talk.usage}` : ""}</p>
      </header>
      <div class="transcript" ref={screen} tabIndex={0} role="log" aria-label="Conversation" aria-busy={talk.isBusy} onScroll={(event) => { const node = event.currentTarget; isStuck.current = node.scrollHeight - node.scrollTop - node.clientHeight < 60; }}>
        <div>
          {error ? <ErrorBox error={error} /> : null}
          {talk.entries.length ? talk.entries.map((entry) => <EntryView key={entry.key} entry={entry} at={at} />) : error ? null : <Empty title="Ask for something your tools can do">
            {talk.model === "demo" ? <p class="muted"><b>demo</b> answers: a small offline model that calls your tools.</p> : null}
            {examples.length ? <div class="row" role="group" aria-label="Requests to begin with">{examples.map((request) => <button type="button" key={request} class="small" disabled={isCut.value} onClick={() => say(request)}>{request}</button>)}</div> : null}
          </Empty>}
          {drawn.map((panel) => <PanelView key={panelKey(panel)} panel={panel} />)}
          {talk.isBusy ? <p class="muted" role="status">● working…</p> : null}
        </div>
      </div>
      <div class="composer"><div class="stack tight">
        {talk.queued.length ? <p class="row small-text"><span class="muted">Waits for the end of the turn:</span><span class="quoted">{talk.queued.join(" · ")}</span><button type="button" class="small" onClick={takeBack}>Take back</button></p> : null}
        {action.error ? <ErrorBox error={action.error} /> : null}
        {fitting.length ? (
          <ul class="palette-list" id="fitting" role="listbox" aria-label="Commands">{fitting.map((command, index) => (
            <li key={command.name} id={`fitting-${index}`} role="option" aria-selected={index === row} onClick={() => complete(command)}>
              <b class="mono">/{command.name}</b><span class="muted quoted">{command.description}</span><span class="muted small-text quoted">{command.plugin}</span></li>
          ))}</ul>
        ) : null}
        <form onSubmit={(event) => { event.preventDefault(); send(); }}>
          <textarea class="text-field" rows={1} aria-label="Message" placeholder="A message; / begins a command" value={text} onKeyDown={onKeyDown} onInput={(event) => write(event.currentTarget.value)}
            aria-autocomplete="list" aria-controls={fitting.length ? "fitting" : undefined} aria-activedescendant={fitting.length ? `fitting-${row}` : undefined} />
          {talk.isBusy && !text.trim() ? <button type="button" class="danger" onClick={cancel}>Cancel</button> : <button class="primary" disabled={!text.trim() || isCut.value}>Send</button>}
        </form>
      </div></div>
    </div>
  );
}
