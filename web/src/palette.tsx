// Find anything by a few letters: pages, tools, plugins, slash commands.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { all, get } from "./base/api";
import { snapshot } from "./base/live";
import { go } from "./base/route";
import type { PluginEntry, SlashCommand, Tool } from "./base/shapes";
import { Dialog } from "./parts/basics";
import { PLACES } from "./shell";

interface Found { kind: string; name: string; about: string; to: string }

const MOST = 60;
let known: { of: number; list: Found[] } | null = null;

async function everything(): Promise<Found[]> {
  const [tools, plugins, commands] = await Promise.all([
    all<Tool>("/tools?schemas=0&state=all").catch(() => []), all<PluginEntry>("/plugins").catch(() => []),
    get<{ items: SlashCommand[] }>("/commands").then((answer) => answer.items, () => []),
  ]);
  return [
    ...tools.map((tool): Found => ({ kind: "tool", name: tool.name, about: tool.description, to: `/tools/${encodeURIComponent(tool.name)}` })),
    ...plugins.map((plugin): Found => ({ kind: "plugin", name: plugin.name, about: `${plugin.state}. ${plugin.description}`, to: `/plugins/${encodeURIComponent(plugin.id)}` })),
    ...commands.map((command): Found => ({ kind: "command", name: `/${command.name}`, about: command.description, to: `/extensions?command=${encodeURIComponent(`/${command.name} `)}` })),
  ];
}

const PAGES: Found[] = [
  ...PLACES.map((place): Found => ({ kind: "page", name: place.label, about: "", to: `/${place.id}` })),
  { kind: "page", name: "Install a plugin", about: "", to: "/plugins?install=1" },
  { kind: "page", name: "Chain", about: "run tools in a row", to: "/tools?chain=1" },
  { kind: "page", name: "Charts", about: "calls, errors, time taken", to: "/activity?charts=1" },
  { kind: "page", name: "Plugins that wait for approval", about: "", to: "/plugins?state=waiting" },
];

function rank(one: Found, words: string[]): number {
  const name = one.name.toLowerCase();
  const text = `${name} ${one.about.toLowerCase()} ${one.kind}`;
  if (!words.every((word) => text.includes(word))) return -1;
  if (!words.length) return one.kind === "page" ? 2 : 1;
  return (name.startsWith(words[0]!) ? 4 : name.includes(words[0]!) ? 3 : 1) + (one.kind === "page" ? 0.5 : 0);
}

export function Palette({ close }: { close: () => void }) {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const [list, setList] = useState<Found[]>([...PAGES, ...(known?.list ?? [])]);
  const box = useRef<HTMLUListElement>(null);
  useEffect(() => {
    if (known?.of === snapshot.value) return;
    void everything().then((found) => { known = { of: snapshot.value, list: found }; setList([...PAGES, ...found]); });
  }, []);
  const shown = useMemo(() => {
    const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
    return list.map((one) => ({ one, rank: rank(one, words) })).filter((item) => item.rank >= 0).sort((a, b) => b.rank - a.rank).slice(0, MOST).map((item) => item.one);
  }, [typed, list]);
  const choose = (one: Found | undefined) => {
    if (!one) return;
    close();
    go(one.to);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const next = Math.min(shown.length - 1, Math.max(0, at + step));
      setAt(next);
      box.current?.children[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(shown[at]);
    }
  };
  return (
    <Dialog title="Find" close={close}>
      <input
        {...({ role: "combobox" } as object)} aria-expanded="true" aria-controls="found" aria-activedescendant={shown.length ? `found-${at}` : undefined} aria-label="Find a page, tool, plugin or command"
        placeholder="A page, tool, plugin or command" autocomplete="off" spellcheck={false} autofocus value={typed}
        onInput={(event) => { setTyped(event.currentTarget.value); setAt(0); }} onKeyDown={onKeyDown}
      />
      <ul class="palette-list" id="found" role="listbox" aria-label="Found" ref={box}>
        {shown.map((one, index) => (
          <li key={`${one.kind} ${one.to} ${one.name}`} id={`found-${index}`} role="option" aria-selected={index === at} onClick={() => choose(one)} onMouseMove={() => setAt(index)}>
            <b class={one.kind === "page" ? "" : "mono quoted"}>{one.name}</b><span class="muted one-line quoted">{one.about}</span><span class="muted small-text">{one.kind}</span>
          </li>
        ))}
      </ul>
      <p class="muted small-text" role="status">{shown.length ? "" : "Nothing found"}</p>
    </Dialog>
  );
}
