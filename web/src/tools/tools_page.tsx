// Tools: find one, fill in its form, run it, see what came of it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { all, post } from "../base/api";
import { changed, snapshot, status } from "../base/live";
import { go, parts, search, setSearch } from "../base/route";
import { count, format, riskSign, stateSign } from "../base/say";
import type { Tool } from "../base/shapes";
import { useFetched } from "../base/use_data";
import { Empty, ErrorBox, Loading, Mark, SearchField, useAction } from "../parts/basics";
import { type Row, VirtualList } from "../parts/virtual_list";
import { chain } from "./state";
import { ToolDetail } from "./tool_detail";
import { type ComponentType } from "preact";

const HEAD_PX = 34;
const TOOL_PX = 58;

type ListRow = Row & ({ head: string; size: number } | { tool: Tool });

function rowsOf(tools: Tool[], words: string[], group: string): ListRow[] {
  const found = tools.filter((tool) => {
    const text = `${tool.name} ${tool.title} ${tool.plugin} ${tool.description} ${format(tool.format)}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const rank = (tool: Tool) => (words.length && !words.every((word) => tool.name.toLowerCase().includes(word)) ? 1 : 0);
  found.sort((a, b) => rank(a) - rank(b));
  if (group === "none" || words.length) return found.map((tool) => ({ key: tool.name, height: TOOL_PX, tool }));
  const groups = new Map<string, Tool[]>();
  for (const tool of found) {
    const name = group === "format" ? format(tool.format) : tool.plugin;
    groups.set(name, [...(groups.get(name) ?? []), tool]);
  }
  return [...groups].flatMap(([head, list]): ListRow[] => [
    { key: `\n${head}`, height: HEAD_PX, head, size: list.length },
    ...list.map((tool): ListRow => ({ key: tool.name, height: TOOL_PX, tool })),
  ]);
}

export function ToolsPage() {
  const name = parts()[1] ?? "";
  const isChain = search.value.has("chain");
  const tools = useFetched<Tool[]>((signal, hear) => all<Tool>("/tools?schemas=0&state=all", hear, signal), ["tools", snapshot.value]);
  const query = search.value.get("q") ?? "";
  const group = search.value.get("group") ?? "plugin";
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = useMemo(() => rowsOf(tools.value ?? [], words, group), [tools.value, query, group]);
  const kept = search.value.toString().replace(/(^|&)chain=[^&]*/, "");
  const to = (tool: string) => `/tools/${encodeURIComponent(tool)}${kept ? `?${kept}` : ""}`;
  const shown = rows.filter((row) => "tool" in row).length;
  const total = tools.value?.length ?? 0;

  const openFirst = (event: KeyboardEvent) => {
    if (event.key !== "Enter") return;
    const first = rows.find((row) => "tool" in row);
    if (first && "tool" in first) go(to(first.tool.name));
  };

  return (
    <div class={`split${name || isChain ? " has-detail" : ""}`}>
      <section class="pane list-pane" aria-label="All tools">
        <header class="pane-head">
          <Refresh isStart={!name} />
          <div onKeyDown={openFirst}><SearchField label="Search tools" value={query} /></div>
          <div class="row spread small-text">
            <span class="muted" role="status">{words.length ? `${shown.toLocaleString("en")} of ` : ""}{count(total, "tool")}</span>
            <label class="row inline">group by
              <select class="tiny" value={group} onChange={(event) => setSearch({ group: event.currentTarget.value === "plugin" ? "" : event.currentTarget.value })}>
                <option value="plugin">plugin</option><option value="format">format</option><option value="none">nothing</option>
              </select>
            </label>
          </div>
          {chain.value.length ? <a class="button small" href="/tools?chain=1">Chain: {count(chain.value.length, "step")}</a> : null}
        </header>
        {tools.error && !tools.value ? <ErrorBox error={tools.error} again={tools.again} /> : null}
        {!tools.value && !tools.error ? <Loading what="tools" /> : null}
        {tools.value && !tools.value.length ? (
          <Empty title="No tools yet">
            <p>A plugin is a folder with tools in it, written for one of five agent systems. Install one, or put it into a folder that anyplug looks into.</p>
            <a class="button" href="/plugins?install=1">Install a plugin</a>
          </Empty>
        ) : null}
        {tools.value?.length && !rows.length ? <Empty title="Nothing found"><p>No tool has all of these words.</p></Empty> : null}
        {rows.length ? (
          <VirtualList rows={rows} label="Tools" active={name} draw={(row) => "head" in row ? (
            <h2 class="group-head"><span class="quoted">{row.head}</span> <span class="muted">{row.size}</span></h2>
          ) : (
            <a class={`entry${row.tool.callable ? "" : " off"}`} data-row href={to(row.tool.name)} aria-current={row.tool.name === name ? "true" : undefined}>
              <span class="entry-top"><b class="mono quoted">{row.tool.name}</b>
                {row.tool.callable ? row.tool.risk.slice(0, 1).map((risk) => <Mark key={risk} sign={riskSign(risk)} quiet />) : <Mark sign={stateSign(row.tool.state)} quiet />}
              </span>
              <span class="entry-about muted quoted">{row.tool.title && row.tool.title !== row.tool.name ? `${row.tool.title}: ` : ""}{row.tool.description}</span>
            </a>
          )} />
        ) : null}
      </section>
      <section class="pane detail-pane" aria-label={isChain ? "Chain" : "Tool"}>
        {isChain ? <ChainView /> : name ? <ToolDetail key={name} name={name} back={`/tools${kept ? `?${kept}` : ""}`} /> : <Start tools={tools.value} />}
      </section>
    </div>
  );
}

/** The heading with the button that reads everything again, and what changed the last time. */
function Refresh({ isStart }: { isStart: boolean }) {
  const action = useAction();
  const [said, say] = useState("");
  const refresh = () => action.run(async () => {
    say("");
    const answer = await post<{ message: string; plugins: number; tools: number }>("/reload");
    say(answer.message || "nothing changed");
  });
  const before = useRef(changed.value);
  useEffect(() => {
    if (changed.value && changed.value !== before.current) say(changed.value);
    before.current = changed.value;
  }, [changed.value]);
  return (
    <>
      <div class="row spread"><h1 tabIndex={-1} data-start={isStart || undefined}>Tools</h1>
        <button type="button" class="small" disabled={action.isBusy} onClick={() => void refresh()}>{action.isBusy ? "Refreshing…" : "Refresh"}</button></div>
      <p role="status" class={said || action.error ? "muted small-text quoted lines" : "hidden-text"}>{action.error ? action.error.message : said}</p>
    </>
  );
}

function Start({ tools }: { tools: Tool[] | undefined }) {
  const first = tools?.find((tool) => tool.callable && tool.tier === 1) ?? tools?.find((tool) => tool.callable);
  const isApproved = (status.value?.approved ?? 0) > 0;
  if (!tools?.length) return null;
  return (
    <Empty title="Pick a tool, fill in its form, run it">
      <p class="muted">Every call passes the same gates here, in the terminal and for your agents, and is recorded.</p>
      <ol class="checklist">
        <li class={(status.value?.calls ?? 0) > 0 ? "done" : ""}>
          Run a tool{first ? <>: <a href={`/tools/${encodeURIComponent(first.name)}`}><code class="quoted">{first.name}</code></a></> : null}
        </li>
        <li class={isApproved ? "done" : ""}>Approve a plugin: <a href="/plugins">{status.value?.waiting ? "see what waits" : "see all plugins"}</a></li>
        <li>Connect an agent: <code>anyplug connect claude</code></li>
      </ol>
      <p class="muted small-text"><kbd>/</kbd> searches, <kbd>j</kbd> and <kbd>k</kbd> move, <kbd>Ctrl K</kbd> finds everything, <kbd>?</kbd> lists all keys.</p>
    </Empty>
  );
}

function ChainView() {
  const [View, setView] = useState<ComponentType | null>(null);
  useEffect(() => void import("./chain_editor").then((module) => setView(() => module.ChainEditor)), []);
  return View ? <View /> : <Loading what="the chain" />;
}
