// One plugin: overview, permissions, changes and approval, configuration, logs.
import { useEffect, useState } from "preact/hooks";
import { post, segment } from "../base/api";
import { snapshot } from "../base/live";
import { go, hash, path, search } from "../base/route";
import { count, healthSign, riskSign, seconds, stateSign } from "../base/say";
import type { Plugin, PluginEntry } from "../base/shapes";
import { useData } from "../base/use_data";
import { Copy, ErrorBox, Loading, Mark, Quoted, Tabs, useAction } from "../parts/basics";
import { ProblemBox } from "../parts/problems";
import { ChangesTab } from "./changes_tab";
import { ConfigTab } from "./config_tab";
import { LogsTab } from "./logs_tab";
import { PermissionsTab } from "./permissions_tab";
import { RemoveDialog } from "./remove_dialog";

export function PluginDetail({ name, back }: { name: string; back: string }) {
  const at = `/plugins/${segment(name)}`;
  const plugin = useData<Plugin>(at, snapshot.value);
  const [said, say] = useState("");
  const [isRemoving, remove] = useState(false);
  const action = useAction();
  useEffect(() => say(""), [name]);
  if (!plugin.value) return plugin.error ? <div class="pane-body"><a href={back}>‹ Back</a><ErrorBox error={plugin.error} again={plugin.again} /></div> : <Loading what="the plugin" />;
  const shown = plugin.value;
  const isWaiting = shown.state === "new" || shown.state === "changed";
  const tab = hash.value || (isWaiting ? "changes" : "overview");
  const choose = (id: string) => go(`${path.value}${search.value.toString() ? `?${search.value}` : ""}#${id}`, true);
  const act = (verb: string) => action.run(async () => {
    const answer = await post<{ plugin: PluginEntry; message?: string; hint?: string }>(`${at}/${verb}`);
    say([answer.message, answer.hint].filter(Boolean).join(". ") || `${verb}: done`);
    await plugin.again();
  });
  const reload = plugin.again;
  const button = (verb: string, label: string) => <button type="button" class="small" disabled={action.isBusy} onClick={() => void act(verb)}>{label}</button>;

  return (
    <div class="pane-body stack">
      <a class="back narrow" href={back}>‹ Plugins</a>
      <header class="stack tight">
        <div class="row spread"><h1 class="quoted" tabIndex={-1} data-start>{shown.name} <span class="muted version">{shown.version}</span></h1>
          <span class="row"><Mark sign={stateSign(shown.state)} />{shown.stays_up ? <Mark sign={healthSign(shown.health)} /> : null}</span></div>
        <p class="muted small-text"><span class="quoted">{shown.format_title}</span>, {count(shown.tools.length, "tool")} in <code class="quoted">{shown.path}</code></p>
        {shown.description ? <Quoted lines>{shown.description}</Quoted> : null}
        <p class="row">{shown.risk.map((risk) => <Mark key={risk} sign={riskSign(risk)} />)}</p>
      </header>
      <div class="row actions" role="group" aria-label="Actions">
        {isWaiting && tab !== "changes" ? <button type="button" class="primary small-primary" onClick={() => choose("changes")}>{shown.state === "new" ? "Review and approve" : "See changes"}</button> : null}
        {shown.state === "disabled" ? button("enable", "Enable") : shown.state === "approved" || shown.state === "changed" ? button("disable", "Disable") : null}
        {shown.is_builtin ? null : button("reload", "Reload")}
        {shown.source ? button("update", "Update") : null}
        {shown.approval ? button("revoke", "Revoke approval") : null}
        {shown.is_explicit || shown.is_builtin ? null : <button type="button" class="small danger" onClick={() => remove(true)}>Remove…</button>}
      </div>
      <p role="status" class={said || action.isBusy ? "box ok quoted" : "hidden-text"}>{action.isBusy ? "Working…" : said}</p>
      {action.error ? <ErrorBox error={action.error} /> : null}
      {plugin.error ? <ErrorBox error={plugin.error} again={plugin.again} /> : null}
      <Tabs label="About this plugin" chosen={tab} choose={choose} tabs={[
        { id: "overview", label: "Overview", render: () => <Overview plugin={shown} reload={reload} /> },
        { id: "permissions", label: "Permissions", render: () => <PermissionsTab plugin={shown} reload={reload} /> },
        { id: "changes", label: isWaiting ? "Changes ●" : "Changes", render: () => <ChangesTab plugin={shown} reload={reload} tell={say} /> },
        { id: "config", label: shown.missing_config.length ? "Config ●" : "Config", render: () => <ConfigTab plugin={shown} reload={reload} /> },
        { id: "logs", label: "Logs", render: () => <LogsTab plugin={shown} /> },
      ]} />
      {isRemoving ? <RemoveDialog plugin={shown} close={() => remove(false)} /> : null}
    </div>
  );
}

function Overview({ plugin, reload }: { plugin: Plugin; reload: () => void }) {
  const { process, confinement, source } = plugin;
  return (
    <>
      {plugin.problems.map((problem, index) => <ProblemBox key={index} problem={problem} done={reload} />)}
      {plugin.missing_config.length ? (
        <div class="box warn"><p>▲ It needs values for <span class="quoted">{plugin.missing_config.join(", ")}</span>.</p><div class="row"><a class="button small" href="#config">Configure</a></div></div>
      ) : null}
      {plugin.instructions ? <section class="box"><h2>What its author tells you</h2><Quoted lines>{plugin.instructions}</Quoted></section> : null}
      {plugin.tool_list.length ? (
        <section class="stack tight"><h2>Tools</h2>
          <ul class="plain-list">{plugin.tool_list.map((tool) => (
            <li key={tool.name}><a class="mono quoted" href={`/tools/${encodeURIComponent(tool.name)}`}>{tool.name}</a> <span class="muted quoted">{tool.description}</span></li>
          ))}</ul></section>
      ) : <p class="muted">It offers no tools{plugin.state === "new" && plugin.stays_up ? " until it is approved and has started" : ""}.</p>}
      {plugin.command_list.length ? (
        <section class="stack tight"><h2>Commands</h2>
          <ul class="plain-list">{plugin.command_list.map((command) => <li key={command.name}><code class="quoted">/{command.name}</code> <span class="muted quoted">{command.description}</span></li>)}</ul></section>
      ) : null}
      <section class="stack tight"><h2>Facts</h2>
        <dl class="facts">
          {process ? <div><dt>process</dt><dd>{process.pid ? `pid ${process.pid}, up ${seconds(process.uptime_s ?? 0)}, ` : ""}{count(process.restarts, "restart")}{process.malformed ? `, ${count(process.malformed, "invalid frame")}` : ""}{process.reason ? <span class="quoted">: {process.reason}</span> : null}</dd></div> : null}
          {process?.events.length ? <div><dt>hears</dt><dd class="quoted">{process.events.join(", ")}</dd></div> : null}
          {process?.intercepts.length ? <div><dt>decides about</dt><dd class="quoted">{process.intercepts.join(", ")}</dd></div> : null}
          {confinement ? <div><dt>sandbox</dt><dd>{confinement.state}{confinement.layers?.length ? `: ${confinement.layers.join(", ")}` : ""}</dd></div> : null}
          {confinement?.shortfalls?.map((short, index) => <div key={index}><dt>not enforced</dt><dd class="quoted">{short.what}: {short.why}{short.cure ? `. ${short.cure}` : ""}</dd></div>)}
          {source ? <div><dt>installed from</dt><dd><code class="quoted">{source.location}</code> <span class="quoted">{source.ref}</span></dd></div> : null}
          {plugin.launch ? <div><dt>keeps running</dt><dd><code class="quoted">{plugin.launch}</code></dd></div> : null}
          {plugin.servers?.map((server) => <div key={server.name}><dt>MCP server</dt><dd><code class="quoted">{server.command?.join(" ") ?? server.url ?? ""}</code></dd></div>)}
          {Object.keys(plugin.environment_withheld).length ? <div><dt>not passed on</dt><dd><details><summary>{count(Object.keys(plugin.environment_withheld).length, "variable")}</summary><ul>{Object.entries(plugin.environment_withheld).map(([name, why]) => <li key={name}><code>{name}</code> <span class="muted">{why}</span></li>)}</ul></details></dd></div> : null}
          {plugin.digest ? <div><dt>digest</dt><dd class="row"><code>{plugin.digest.slice(0, 16)}…</code><Copy text={plugin.digest}>Copy</Copy></dd></div> : null}
        </dl>
      </section>
      {process?.stderr_tail ? <section class="stack tight"><h2>What its last run printed</h2><pre class="block quoted" tabIndex={0} role="group" aria-label="Output">{process.stderr_tail}</pre></section> : null}
    </>
  );
}
