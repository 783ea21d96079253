// What a plugin asked for, was granted, and was seen to use.
import { useState } from "preact/hooks";
import { put, segment } from "../base/api";
import { count, moment } from "../base/say";
import type { Plugin } from "../base/shapes";
import { ErrorBox, Switch, Told, useAction } from "../parts/basics";

export function PermissionsTab({ plugin, reload }: { plugin: Plugin; reload: () => void }) {
  const action = useAction();
  const [said, say] = useState<string[]>([]);
  const [added, setAdded] = useState("");
  const granted = plugin.permissions.granted;
  const canChange = plugin.approval !== null;
  const set = (next: string[]) => action.run(async () => {
    const answer = await put<{ notes: string[] }>(`/plugins/${segment(plugin.id)}/grants`, { granted: next });
    say(answer.notes?.length ? answer.notes : ["Saved. It counts from the next call."]);
    reload();
  });
  const unused = plugin.seen_in_use ? plugin.permission_rows.filter((row) => row.granted && row.is_observed && !row.seen) : [];
  return (
    <>
      {plugin.warning ? <p class="box warn"><span><span aria-hidden="true">▲ </span>{plugin.warning}</span></p> : null}
      {plugin.permission_rows.length ? (
        <table class="cards">
          <thead><tr><th scope="col">Permission</th><th scope="col">Asked</th><th scope="col">Granted</th><th scope="col">Seen in use</th></tr></thead>
          <tbody>
            {plugin.permission_rows.map((row, index) => (
              <tr key={row.permission}>
                <th scope="row"><code class="quoted">{row.permission}</code><p class="quoted" id={`means-${index}`}>{row.is_risky ? "▲ " : ""}{row.description}</p>{row.really ? <p class="muted small-text"><Told>{`It ${row.really}`}</Told></p> : null}</th>
                <td data-label="Asked">{row.asked ? "yes" : "no"}</td>
                <td data-label="Granted"><Switch on={row.granted} label={`Grant ${row.permission}`} described={`means-${index}`} disabled={!canChange || action.isBusy}
                  change={(on) => void set(on ? [...granted, row.permission] : granted.filter((one) => one !== row.permission))} /></td>
                <td data-label="Seen in use">{row.seen ? <>in {count(row.seen.calls, "call")}, {moment(row.seen.at)}<span class="muted quoted small-text"> {row.seen.targets?.slice(0, 5).join(", ")}</span></> : <span class="muted">{row.is_observed ? "never" : "not recorded"}</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : <p>It asks for nothing: it can compute, and write to its own data folder.</p>}
      {!canChange && plugin.permission_rows.length ? <p class="muted">You choose when you <a href="#changes">approve it</a>.</p> : null}
      {canChange && unused.length ? (
        <div class="box"><p>In {count(plugin.seen_in_use!.calls, "recorded call")} it never used <b class="quoted">{unused.map((row) => row.permission).join(", ")}</b>.</p>
          <div class="row"><button type="button" class="small" disabled={action.isBusy} onClick={() => void set(granted.filter((one) => !unused.some((row) => row.permission === one)))}>Take away what was never used</button></div></div>
      ) : null}
      {canChange ? (
        <form class="row nowrap" onSubmit={(event) => { event.preventDefault(); void set([...granted, added.trim()]).then((done) => done && setAdded("")); }}>
          <input aria-label="Another permission to grant" placeholder="filesystem:read:~/notes" value={added} spellcheck={false} autocomplete="off" onInput={(event) => setAdded(event.currentTarget.value)} />
          <button class="small" disabled={!added.trim() || action.isBusy}>Grant</button>
        </form>
      ) : null}
      <div role="status">{said.map((text, index) => <p key={index} class="muted quoted">{text}</p>)}</div>
      {action.error ? <ErrorBox error={action.error} /> : null}
    </>
  );
}
