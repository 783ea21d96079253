// Remove a plugin, after saying what goes and what stays.
import { useState } from "preact/hooks";
import { query, remove, segment } from "../base/api";
import { go } from "../base/route";
import type { Plugin } from "../base/shapes";
import { useData } from "../base/use_data";
import { Dialog, ErrorBox, Loading, useAction } from "../parts/basics";

interface Removal { going: string[]; staying: string[]; needs_path: boolean }

export function RemoveDialog({ plugin, close }: { plugin: Plugin; close: () => void }) {
  const [purge, setPurge] = useState(false);
  const [typed, setTyped] = useState("");
  const at = `/plugins/${segment(plugin.id)}`;
  const plan = useData<Removal>(`${at}/removal${purge ? "?purge=1" : ""}`);
  const action = useAction();
  const go_on = () => action.run(async () => {
    await remove(`${at}${query({ purge: purge ? 1 : 0, path: plan.value?.needs_path ? typed : "" })}`);
    close();
    go("/plugins");
  });
  return (
    <Dialog title={`Remove ${plugin.name}?`} close={close}>
      {plan.value ? (
        <div class="stack">
          <div><b>Goes</b><ul>{plan.value.going.map((text, index) => <li key={index} class="quoted">{text}</li>)}</ul></div>
          {plan.value.staying.length ? <div><b>Stays</b><ul>{plan.value.staying.map((text, index) => <li key={index} class="quoted">{text}</li>)}</ul></div> : null}
          <label class="check"><input type="checkbox" checked={purge} onChange={(event) => setPurge(event.currentTarget.checked)} /><span>Delete its data as well</span></label>
          {plan.value.needs_path ? <label class="field"><span class="field-name">This folder is your own. Type its path to delete it</span><span class="muted quoted">{plugin.path}</span><input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></label> : null}
          {action.error ? <ErrorBox error={action.error} /> : null}
          <div class="row"><button type="button" class="danger" disabled={action.isBusy || (plan.value.needs_path && typed !== plugin.path)} onClick={() => void go_on()}>Remove</button><button type="button" onClick={close}>Keep it</button></div>
        </div>
      ) : plan.error ? <ErrorBox error={plan.error} again={plan.again} /> : <Loading what="what goes" />}
    </Dialog>
  );
}
