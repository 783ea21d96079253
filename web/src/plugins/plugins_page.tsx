// Plugins: what is there, what waits for approval, and everything about one of them.
import { useMemo } from "preact/hooks";
import { all } from "../base/api";
import { snapshot } from "../base/live";
import { go, parts, search, setSearch } from "../base/route";
import { count, healthSign, stateSign } from "../base/say";
import type { PluginEntry } from "../base/shapes";
import { useFetched } from "../base/use_data";
import { Empty, ErrorBox, Loading, Mark, SearchField } from "../parts/basics";
import { type Row, VirtualList } from "../parts/virtual_list";
import { InstallDialog } from "./install_dialog";
import { PluginDetail } from "./plugin_detail";

const ENTRY_PX = 66;
const ORDER: Record<string, number> = { changed: 0, new: 1, broken: 2, approved: 3, disabled: 4, denied: 5, shadowed: 6 };

export function PluginsPage() {
  const name = parts()[1] ?? "";
  const plugins = useFetched<PluginEntry[]>((signal, hear) => all<PluginEntry>("/plugins", hear, signal), ["plugins", snapshot.value]);
  const query = search.value.get("q") ?? "";
  const state = search.value.get("state") ?? "";
  const rows = useMemo((): (Row & { plugin: PluginEntry })[] => {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return (plugins.value ?? [])
      .filter((plugin) => !state || plugin.state === state || (state === "waiting" && (plugin.state === "new" || plugin.state === "changed")))
      .filter((plugin) => words.every((word) => `${plugin.name} ${plugin.description} ${plugin.format_title} ${plugin.path}`.toLowerCase().includes(word)))
      .sort((a, b) => (ORDER[a.state] ?? 9) - (ORDER[b.state] ?? 9) || a.name.localeCompare(b.name))
      .map((plugin) => ({ key: plugin.id, height: ENTRY_PX, plugin }));
  }, [plugins.value, query, state]);
  const shown = new URLSearchParams(search.value);
  shown.delete("install");
  const kept = shown.toString() ? `?${shown}` : "";

  return (
    <div class={`split${name ? " has-detail" : ""}`}>
      <section class="pane list-pane" aria-label="All plugins">
        <header class="pane-head">
          <div class="row spread"><h1 tabIndex={-1} data-start={name ? undefined : true}>Plugins</h1>
            <button type="button" class="small" onClick={() => setSearch({ install: "1" }, false)}>Install…</button></div>
          <SearchField label="Search plugins" value={query} />
          <div class="row spread small-text">
            <span class="muted" role="status">{count(rows.length, "plugin")}</span>
            <label class="row inline">show
              <select class="tiny" value={state} onChange={(event) => setSearch({ state: event.currentTarget.value })}>
                <option value="">all</option><option value="waiting">waiting for approval</option><option value="approved">approved</option>
                <option value="disabled">disabled</option><option value="broken">broken</option><option value="denied">denied</option>
              </select></label>
          </div>
        </header>
        {plugins.error && !plugins.value ? <ErrorBox error={plugins.error} again={plugins.again} /> : null}
        {!plugins.value && !plugins.error ? <Loading what="plugins" /> : null}
        {plugins.value && !rows.length ? (
          <Empty title={plugins.value.length ? "Nothing found" : "No plugins yet"}>
            {plugins.value.length ? null : <><p>A plugin is a folder with tools in it, for any of five agent systems. Nothing of it runs before you approve it.</p><button class="primary" onClick={() => setSearch({ install: "1" }, false)}>Install a plugin</button></>}
          </Empty>
        ) : null}
        {rows.length ? (
          <VirtualList rows={rows} label="Plugins" active={name} draw={({ plugin }) => (
            <a class="entry" data-row href={`/plugins/${encodeURIComponent(plugin.id)}${kept}`} aria-current={plugin.id === name || plugin.name === name ? "true" : undefined}>
              <span class="entry-top"><b class="quoted">{plugin.name}</b>
                <span class="row nowrap">{plugin.stays_up && plugin.health !== "idle" ? <Mark sign={healthSign(plugin.health)} quiet /> : null}<Mark sign={stateSign(plugin.state)} quiet /></span></span>
              <span class="entry-about muted"><span class="quoted">{plugin.format_title}{plugin.version ? ` ${plugin.version}` : ""}</span>{`, ${count(plugin.tools.length, "tool")}`}{plugin.problems.length ? <span class="warn">{`, ▲ ${count(plugin.problems.length, "problem")}`}</span> : null}<span class="quoted">{plugin.description ? `: ${plugin.description}` : ""}</span></span>
            </a>
          )} />
        ) : null}
      </section>
      <section class="pane detail-pane" aria-label="Plugin">
        {name ? <PluginDetail key={name} name={name} back={`/plugins${kept}`} /> : (
          <Empty title="Pick a plugin"><p class="muted">You see what it may touch, what changed since you approved it, how it is configured and what it logs.</p></Empty>
        )}
      </section>
      {search.value.has("install") ? <InstallDialog close={() => setSearch({ install: "" })} done={(id) => go(`/plugins/${encodeURIComponent(id)}#changes`)} /> : null}
    </div>
  );
}
