// The frame around every page: navigation, the questions bar, keys, the connection.
import { type ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { connection, found, lastHeard, questions, running, status } from "./base/live";
import { go, parts, path, search } from "./base/route";
import { clock, count } from "./base/say";
import { settings } from "./base/settings";
import { Dialog, Guarded, Loading } from "./parts/basics";
import { Icon } from "./parts/icons";
import { Notifications } from "./notifications";
import { QuestionsBar } from "./questions_bar";
import { ToolsPage } from "./tools/tools_page";

interface Place { id: string; label: string; key: string; load?: () => Promise<ComponentType> }

export const PLACES: Place[] = [
  { id: "tools", label: "Tools", key: "t" },
  { id: "plugins", label: "Plugins", key: "p", load: async () => (await import("./plugins/plugins_page")).PluginsPage },
  { id: "activity", label: "Activity", key: "a", load: async () => (await import("./pages/activity_page")).ActivityPage },
  { id: "policy", label: "Policy", key: "o", load: async () => (await import("./pages/policy_page")).PolicyPage },
  { id: "extensions", label: "Extensions", key: "e", load: async () => (await import("./pages/extensions_page")).ExtensionsPage },
  { id: "chat", label: "Chat", key: "c", load: async () => (await import("./pages/chat_page")).ChatPage },
  { id: "fleet", label: "Fleet", key: "f", load: async () => (await import("./pages/fleet_page")).FleetPage },
  { id: "settings", label: "Settings", key: "s", load: async () => (await import("./pages/settings_page")).SettingsPage },
];
const AT_THE_BOTTOM = new Set(["tools", "plugins", "activity", "chat"]);
const LETTER_WAIT_MS = 1500;

const loaded = new Map<string, ComponentType>([["tools", ToolsPage]]);

function Page({ place }: { place: Place }) {
  const [, redraw] = useState(0);
  const [fault, setFault] = useState("");
  const View = loaded.get(place.id);
  useEffect(() => {
    if (View || !place.load) return;
    place.load().then(
      (view) => { loaded.set(place.id, view); redraw((n) => n + 1); },
      () => setFault("This part of the page could not be loaded. Reload the page."),
    );
  }, [place.id]);
  if (fault) return <p class="box risk" role="alert">{fault}</p>;
  return View ? <View /> : <Loading what={place.label} />;
}

function typingIn(target: EventTarget | null): boolean {
  const node = target as HTMLElement | null;
  return !!node?.closest?.("input, textarea, select, [contenteditable], [data-keys]");
}

export function Shell() {
  const [asked, ask] = useState<"" | "palette" | "keys">("");
  const [Palette, setPalette] = useState<ComponentType<{ close: () => void }> | null>(null);
  const main = useRef<HTMLElement>(null);
  const before = useRef(path.value);
  const id = parts()[0] ?? "tools";
  const place = PLACES.find((one) => one.id === id) ?? PLACES[0]!;
  const openPalette = () => {
    ask("palette");
    void import("./palette").then((module) => setPalette(() => module.Palette));
  };

  useEffect(() => {
    let wasG = 0;
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        openPalette();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || typingIn(event.target) || !settings.value.letters) return;
      if (document.querySelector("dialog[open]")) return;
      if (Date.now() - wasG < LETTER_WAIT_MS) {
        wasG = 0;
        const to = PLACES.find((one) => one.key === event.key);
        if (to) { event.preventDefault(); go(`/${to.id}`); }
      } else if (event.key === "g") wasG = Date.now();
      else if (event.key === "/") {
        const field = document.querySelector<HTMLElement>("main input[type=search]");
        if (field) { event.preventDefault(); field.focus(); }
      } else if (event.key === "?") ask("keys");
      else if (event.key === "j" || event.key === "k") step(event);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  const where = parts().slice(0, 2).join("/");
  useEffect(() => {
    if (before.current === path.value) return;
    before.current = path.value;
    const active = document.activeElement;
    if (active && main.current?.contains(active) && active.matches("input, textarea")) return;
    main.current?.querySelector<HTMLElement>("[data-start]")?.focus({ preventScroll: true });
  }, [where, place.id]);

  const waiting = questions.value.length;
  useEffect(() => {
    const name = parts()[1];
    document.title = `${waiting ? `(${waiting}) ` : ""}${name ? `${name} · ` : ""}${place.label} · anyplug`;
  }, [waiting, where]);

  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the content</a>
      <Navigation here={place.id} openPalette={openPalette} />
      <div class="column">
        <ConnectionLine />
        <QuestionsBar />
        <FoundLine />
        <main id="main" ref={main} tabIndex={-1} key={place.id}><Guarded of={where} instead={<p class="box risk" role="alert">! This view failed. Reload the page, or go elsewhere.</p>}><Page place={place} /></Guarded></main>
      </div>
      <Notifications />
      {asked === "palette" && Palette ? <Palette close={() => ask("")} /> : null}
      {asked === "keys" ? <KeyList close={() => ask("")} /> : null}
    </div>
  );
}

function step(event: KeyboardEvent): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
  if (!rows.length) return;
  event.preventDefault();
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const current = at < 0 ? rows.findIndex((row) => row.getAttribute("aria-current")) : at;
  rows[Math.min(rows.length - 1, Math.max(0, current + (event.key === "j" ? 1 : -1)))]?.focus();
}

function Navigation({ here, openPalette }: { here: string; openPalette: () => void }) {
  const [isMore, more] = useState(false);
  const places = PLACES.filter((place) => place.id !== "fleet" || status.value?.fleet || here === "fleet");
  const rest = places.filter((place) => !AT_THE_BOTTOM.has(place.id));
  const badge = (id: string) => {
    if (id === "plugins" && status.value?.waiting) return status.value.waiting;
    if (id === "activity" && running.value.size) return running.value.size;
    return 0;
  };
  const link = (place: Place) => (
    <li key={place.id} class={AT_THE_BOTTOM.has(place.id) ? "" : "wide-only"}>
      <a href={`/${place.id}`} aria-current={here === place.id ? "page" : undefined} onClick={() => more(false)}>
        <Icon name={place.id} /><span>{place.label}</span>
        {badge(place.id) ? <span class="badge" aria-label={place.id === "plugins" ? `${badge(place.id)} wait for approval` : `${badge(place.id)} running`}>{badge(place.id)}</span> : null}
      </a>
    </li>
  );
  return (
    <nav aria-label="Pages">
      <a class="brand" href="/tools"><img src="/icon.svg" alt="" width="24" height="24" /><span>anyplug</span></a>
      <button type="button" class="find wide-only" onClick={openPalette} aria-keyshortcuts="Control+K"><span>Find…</span><kbd>Ctrl K</kbd></button>
      <ul>
        {places.map(link)}
        <li class="narrow-only">
          <button type="button" aria-expanded={isMore} aria-controls="more-places" onClick={() => more(!isMore)} class={rest.some((one) => one.id === here) ? "current" : ""}>
            <Icon name="more" /><span>More</span>
          </button>
        </li>
      </ul>
      {isMore ? (
        <ul id="more-places" class="more narrow-only">
          {rest.map((place) => (
            <li key={place.id}><a href={`/${place.id}`} aria-current={here === place.id ? "page" : undefined} onClick={() => more(false)}><Icon name={place.id} /><span>{place.label}</span></a></li>
          ))}
          <li><button type="button" onClick={() => { more(false); openPalette(); }}><Icon name="more" /><span>Find…</span></button></li>
        </ul>
      ) : null}
      <p class="standing wide-only"><Standing /></p>
    </nav>
  );
}

function Standing() {
  const is = connection.value;
  if (is === "live") return <span class="mark ok"><span aria-hidden="true">●</span> live</span>;
  if (is === "connecting") return <span class="mark muted"><span aria-hidden="true">○</span> connecting</span>;
  return <span class="mark risk"><span aria-hidden="true">!</span> not connected</span>;
}

const NO_LOGIN: Record<string, string> = {
  expired: "The link was used already, or is too old. ",
  elsewhere: "The link is for another address than this one, and works only there: open it exactly as it was printed. ",
};

function ConnectionLine() {
  if (connection.value === "no_session") {
    return (
      <div class="line risk" role="alert">
        <p><b>This page has no session.</b> {NO_LOGIN[new URLSearchParams(location.search).get("login") ?? ""]}Run <code>anyplug ui</code> in a terminal: it opens this page with a link that works once.</p>
      </div>
    );
  }
  if (connection.value === "offline") {
    return (
      <div class="line warn" role="status">
        <p><b>Not connected</b>{lastHeard.value ? `, as of ${clock(lastHeard.value / 1000)}` : ""}. Nothing can be run or answered until anyplug is back; start it with <code>anyplug ui</code>.</p>
      </div>
    );
  }
  const fault = status.value?.settings_fault;
  return fault ? <div class="line warn" role="status"><p><b>settings.toml is invalid.</b> <span class="quoted">{fault}</span></p></div> : null;
}

function FoundLine() {
  const waiting = found.value.filter((plugin) => plugin.id !== parts()[1]);
  if (!waiting.length) return null;
  const close = (id: string) => (found.value = found.value.filter((plugin) => plugin.id !== id));
  return (
    <div class="line ask" role="status">
      {waiting.map((plugin) => (
        <p key={plugin.id}>
          <span aria-hidden="true">? </span>
          {plugin.state === "new" ? "Found a new plugin: " : "Changed since you approved it: "}<b class="quoted">{plugin.name}</b>
          {` (${plugin.format_title})${plugin.tools.length || !plugin.stays_up ? `, ${count(plugin.tools.length, "tool")}` : ""}. `}
          {plugin.state === "new" ? "Nothing of it has run. " : ""}
          <a href={`/plugins/${encodeURIComponent(plugin.id)}#changes`} onClick={() => close(plugin.id)}>Review</a>{" "}
          <button type="button" class="small" onClick={() => close(plugin.id)}>Later</button>
        </p>
      ))}
    </div>
  );
}

function KeyList({ close }: { close: () => void }) {
  const keys: [string, string][] = [
    ["Ctrl K", "find pages, tools, plugins and commands"],
    ...PLACES.map((place): [string, string] => [`g ${place.key}`, `go to ${place.label}`]),
    ["/", "search in this page"], ["j, k", "next and previous in a list"], ["Enter", "open"],
    ["Ctrl Enter", "run the tool"], ["?", "this list"], ["Esc", "close"],
  ];
  return (
    <Dialog title="Keys" close={close}>
      <dl class="keys">{keys.map(([key, does]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{does}</dd></div>)}</dl>
      <p class="muted">Single letters do nothing while you type, and <a href="/settings" onClick={close}>can be switched off</a>.</p>
    </Dialog>
  );
}

export const isAt = (id: string) => (parts()[0] ?? "tools") === id;
export const searched = (name: string) => search.value.get(name) ?? "";
