// What changed since the last approval, and the approval after it. The button comes last, so that the diff comes first.
import { useRef, useState } from "preact/hooks";
import { ApiError, post, segment } from "../base/api";
import { snapshot } from "../base/live";
import { count, day } from "../base/say";
import type { Changes, FileChange, Plugin } from "../base/shapes";
import { useData } from "../base/use_data";
import { ErrorBox, Loading, Quoted, Switch, Told, useAction } from "../parts/basics";
import { Diff } from "../parts/diff";
import { useSettled } from "../parts/settled";

const FIRST_FILES = 40;
const OPEN_LINES = 60; // a diff of more lines is folded

export function ChangesTab({ plugin, reload, tell }: { plugin: Plugin; reload: () => Promise<unknown>; tell: (said: string) => void }) {
  const changes = useData<Changes>(`/plugins/${segment(plugin.id)}/changes`, snapshot.value, plugin.digest);
  if (!changes.value) return changes.error ? <ErrorBox error={changes.error} again={changes.again} /> : <Loading what="the changes" />;
  const { value } = changes;
  const isSame = value.is_known && !value.files.length && !value.tools.length && !value.texts.length && !value.permissions.added.length && !value.permissions.removed.length;
  const canApprove = !plugin.is_builtin && plugin.state !== "shadowed" && plugin.state !== "broken" && (plugin.state !== "approved" || !isSame) && plugin.state !== "disabled";
  return (
    <>
      {value.is_known ? <p>{summary(plugin.name, value)}</p> : <p>It was never approved, so all of it is new: {plugin.tools.length || !plugin.stays_up ? `${count(plugin.tools.length, "tool")}, ` : ""}{count(value.files_total, "file")}.{plugin.tools.length || !plugin.stays_up ? "" : " It reports its tools when it starts, which is after your approval."}</p>}
      {plugin.problems.filter((problem) => problem.level === "error").map((problem, index) => <p key={index} class="box risk"><Quoted lines>{problem.message}</Quoted></p>)}
      <PermissionChanges changes={value} plugin={plugin} />
      {value.tools.length ? (
        <section class="stack tight"><h2>Tools</h2>
          {value.is_known ? null : <ul class="plain-list">{plugin.tool_list.map((tool) => <li key={tool.name}><code class="quoted">{tool.name}</code> <span class="muted quoted">{tool.description}</span></li>)}</ul>}
          {value.tools.filter(() => value.is_known).map((tool) => (
            <details key={tool.name} class="change" open={value.is_known}>
              <summary><code class="quoted">{tool.name}</code> <span class="muted">{tool.change}</span></summary>
              {tool.diff?.length ? <Diff text={tool.diff} label={`What changed in ${tool.name}`} /> : null}
            </details>
          ))}</section>
      ) : null}
      {value.texts.length ? <section class="stack tight"><h2>Texts and configuration</h2><ul>{value.texts.map((text, index) => <li key={index} class="quoted lines">{text}</li>)}</ul></section> : null}
      <FileChanges changes={value} />
      {canApprove ? <Approval key={plugin.digest} plugin={plugin} changes={value} reload={() => Promise.all([changes.again(), reload()])} tell={tell} /> : <p class="muted">{plugin.state === "approved" ? "It is approved as it is now." : `It is ${plugin.state}, so there is nothing to approve.`}</p>}
    </>
  );
}

function summary(name: string, changes: Changes): string {
  const parts = changes.files.slice(0, 3).map((file) => `${file.path} (+${file.added} −${file.removed})`);
  if (changes.files.length > 3) parts.push(`${count(changes.files.length - 3, "more file")}`);
  if (!parts.length && !changes.tools.length && !changes.texts.length) return `${name} is as you approved it on ${day(changes.since)}.`;
  const isSameWord = !changes.permissions.added.length && !changes.permissions.removed.length && !changes.tools.length;
  return `${name} changed since you approved it on ${day(changes.since)}: ${parts.join(", ") || "its definition"}. ${isSameWord ? "Permissions and tools are the same." : ""}`;
}

function PermissionChanges({ changes, plugin }: { changes: Changes; plugin: Plugin }) {
  const { added, removed } = changes.permissions;
  if (!changes.is_known || (!added.length && !removed.length)) return null;
  const about = (name: string) => plugin.permission_rows.find((row) => row.permission === name)?.description ?? "";
  return (
    <section class="stack tight"><h2>Permissions</h2>
      <ul>
        {added.map((name) => <li key={name} class="warn"><span aria-hidden="true">▲ </span>asks for more: <code class="quoted">{name}</code> <span class="quoted">{about(name)}</span></li>)}
        {removed.map((name) => <li key={name}>asks no longer for <code class="quoted">{name}</code></li>)}
      </ul></section>
  );
}

function FileChanges({ changes }: { changes: Changes }) {
  const [most, setMost] = useState(FIRST_FILES);
  if (!changes.files.length) return null;
  if (!changes.is_known) {
    return (
      <details class="change"><summary>{count(changes.files_total, "file")} of code</summary>
        <ul class="plain-list tight">{changes.files.slice(0, most).map((file) => <li key={file.path}><code class="quoted">{file.path}</code>{file.is_text ? "" : ", not text"}</li>)}</ul>
        {changes.files.length > most ? <button type="button" class="small" onClick={() => setMost(most * 4)}>Show {changes.files.length - most} more</button> : null}
      </details>
    );
  }
  return (
    <section class="stack tight"><h2>Code <span class="muted small-text">{count(changes.files_total, "file")}</span></h2>
      {changes.is_known && !changes.has_snapshot ? <p class="muted">No copy of the approved code is left, so lines cannot be compared.</p> : null}
      {changes.files.slice(0, most).map((file) => <OneFile key={file.path} file={file} isKnown={changes.is_known} />)}
      {changes.files.length > most ? <button type="button" class="small" onClick={() => setMost(most * 4)}>Show {changes.files.length - most} more</button> : null}
      {changes.files_total > changes.files.length ? <p class="muted">{count(changes.files_total - changes.files.length, "more file")} not listed.</p> : null}
    </section>
  );
}

function OneFile({ file, isKnown }: { file: FileChange; isKnown: boolean }) {
  const head = <><code class="quoted">{file.path}</code> <span class="muted">{isKnown ? `${file.change}, ` : ""}{isKnown ? `+${file.added} −${file.removed}` : ""}{file.is_text ? "" : ", not text"}</span></>;
  if (!file.diff) return <p class="change-line">{head}</p>;
  return (
    <details class="change" open={isKnown && file.added + file.removed <= OPEN_LINES}>
      <summary>{head}</summary>
      <Diff text={file.diff} label={`What changed in ${file.path}`} />
      {file.is_cut ? <p class="muted">The rest is not shown; read the file itself.</p> : null}
    </details>
  );
}

function Approval({ plugin, changes, reload, tell }: { plugin: Plugin; changes: Changes; reload: () => Promise<unknown>; tell: (said: string) => void }) {
  const { approval_text: text, permission_rows: rows } = plugin;
  const [isFewer, fewer] = useState(false);
  const [chosen, setChosen] = useState<Set<string>>(new Set(plugin.default_grants));
  const [always, setAlways] = useState(false);
  const [follow, setFollow] = useState(false);
  const [unconfined, setUnconfined] = useState(false);
  const action = useAction();
  const card = useRef<HTMLElement>(null);
  const isSettled = useSettled(card, plugin.digest);
  // The two are read one after the other, and a plugin may change in between: approve only what is shown whole.
  const isOff = !isSettled || action.isBusy || (!!changes.digest && changes.digest !== plugin.digest);
  const isAgain = plugin.state === "changed";
  const mustBeOpen = plugin.confinement?.state === "refused" || (action.error instanceof ApiError && action.error.code === "not_enforceable");
  const approve = () => isOff ? undefined : action.run(async () => {
    const answer = await post<{ said: string; ended: string[] }>(`/plugins/${segment(plugin.id)}/approve`, {
      digest: changes.digest || plugin.digest,
      ...(isFewer ? { granted: [...chosen] } : {}),
      ...(always ? { always } : {}), ...(follow ? { follow } : {}), ...(unconfined ? { unconfined } : {}),
    });
    await reload();
    tell([`${plugin.name} is approved.`, ...(answer.ended ?? []), answer.said].filter(Boolean).join(" "));
  });
  const refuse = () => isOff ? undefined : action.run(async () => {
    const answer = await post<{ message?: string }>(`/plugins/${segment(plugin.id)}/${isAgain ? "disable" : "deny"}`);
    await reload();
    tell(answer.message || (isAgain ? `${plugin.name} is kept off.` : `${plugin.name} is denied.`));
  });
  return (
    <section class="card approval" aria-label="Approval" ref={card}>
      <h2 class="quoted">{text.title.replace(/\? From [^]*$/, "?")}</h2>
      <p class="muted">From <code class="quoted">{plugin.path}</code>. {isAgain ? "It has not run since it changed." : "Nothing of it has run."}</p>
      <div><b>It could</b><ul>{text.could.map((line, index) => <li key={index}><Told>{line}</Told></li>)}</ul></div>
      <p><b>If you approve</b>, <span class="quoted">{text.if_approved.replace(/^You/, "you")}</span></p>
      <p><b>It lasts</b> <span class="quoted">{text.lasts.replace(/^It lasts /, "")}</span> Undo: <code class="quoted">{text.undo}</code></p>
      {plugin.init ? <p class="warn">▲ Its set-up script runs at once: <code class="quoted">{plugin.init}</code></p> : null}
      {isFewer ? (
        <fieldset class="field"><legend>Grant only</legend>
          {rows.map((row) => (
            <div class="spread row" key={row.permission}><span><code class="quoted">{row.permission}</code> <span class="muted quoted">{row.description}</span></span>
              <Switch on={chosen.has(row.permission)} label={`Grant ${row.permission}`} change={(on) => { const next = new Set(chosen); if (on) next.add(row.permission); else next.delete(row.permission); setChosen(next); }} /></div>
          ))}
        </fieldset>
      ) : null}
      <details><summary>More choices</summary>
        <div class="stack tight">
          <label class="check"><input type="checkbox" checked={always} onChange={(event) => setAlways(event.currentTarget.checked)} /> <span>Never ask before a call <span class="muted">every chat and agent, until the plugin changes</span></span></label>
          <label class="check"><input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} /> <span>Follow my edits <span class="muted">stays approved while permissions and definition are the same; for plugins that you write</span></span></label>
          {mustBeOpen ? <label class="check"><input type="checkbox" checked={unconfined} onChange={(event) => setUnconfined(event.currentTarget.checked)} /> <span class="risk">■ Run it without a sandbox <span class="muted">it can then do whatever you can</span></span></label> : null}
        </div>
      </details>
      {action.error ? <ErrorBox error={action.error}>{action.error.code === "conflict" ? <button type="button" class="small" onClick={() => { action.clear(); void reload(); }}>Show it as it is now</button> : null}</ErrorBox> : null}
      <div class="row actions">
        <button class="primary" aria-disabled={isOff} onClick={() => void approve()}>{action.isBusy ? "Approving…" : isAgain ? "Approve again" : isFewer ? `Approve with ${count(chosen.size, "permission")}` : "Approve"}</button>
        {rows.length ? <button type="button" disabled={action.isBusy} onClick={() => fewer(!isFewer)}>{isFewer ? "Approve with all it asks for…" : "Approve with fewer permissions…"}</button> : null}
        <button type="button" aria-disabled={isOff} onClick={() => void refuse()}>{isAgain ? "Keep it off" : "Don't approve"}</button>
      </div>
    </section>
  );
}
