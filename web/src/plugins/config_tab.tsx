// A plugin's configuration. Secrets come in here and never go out again.
import { useId, useState } from "preact/hooks";
import { put, segment } from "../base/api";
import type { ConfigKey, Json, Plugin } from "../base/shapes";
import { useData } from "../base/use_data";
import { ErrorBox, Loading, Switch, useAction } from "../parts/basics";

interface Config { keys: ConfigKey[]; keeps_config: boolean; switches: null | { tool: string; on: boolean }[] }

export function ConfigTab({ plugin, reload }: { plugin: Plugin; reload: () => void }) {
  const at = `/plugins/${segment(plugin.id)}/config`;
  const config = useData<Config>(at);
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [said, say] = useState("");
  const action = useAction();
  if (!config.value) return config.error ? <ErrorBox error={config.error} again={config.again} /> : <Loading what="the configuration" />;
  const { keys, switches } = config.value;
  const save = (body: Record<string, unknown>) => action.run(async () => {
    await put(at, body);
    setTyped({});
    say("Saved.");
    config.again();
    reload();
  });
  const values = () => {
    const set: Record<string, Json> = {};
    for (const key of keys) if (typed[key.name] !== undefined) set[key.name] = valueOf(key, typed[key.name]!);
    return set;
  };
  if (!keys.length && !switches?.length) return <p class="muted">It has nothing to configure.</p>;
  return (
    <>
      {keys.length ? (
        <form class="form" onSubmit={(event) => { event.preventDefault(); void save({ values: values() }); }} autocomplete="off">
          {keys.map((key) => (
            <ConfigField key={key.name} entry={key} typed={typed[key.name]} type={(text) => { say(""); setTyped({ ...typed, [key.name]: text }); }} unset={() => void save({ unset: [key.name] })} />
          ))}
          <div class="row"><button class="primary" disabled={action.isBusy || !Object.keys(typed).length}>Save</button><span role="status" class="muted">{said}</span></div>
        </form>
      ) : null}
      {switches?.length ? (
        <section class="stack tight"><h2>Tools</h2>
          {switches.map((one) => <div class="row spread" key={one.tool}><code class="quoted">{one.tool}</code><Switch on={one.on} label={`Use ${one.tool}`} disabled={action.isBusy} change={(on) => void save({ switches: { [one.tool]: on } })} /></div>)}</section>
      ) : null}
      {action.error ? <ErrorBox error={action.error} /> : null}
    </>
  );
}

function valueOf(key: ConfigKey, text: string): Json {
  if (key.kind === "boolean") return text === "true";
  if ((key.kind === "integer" || key.kind === "number") && text.trim() && Number.isFinite(Number(text))) return Number(text);
  if (key.kind === "object" || key.kind === "array") {
    try {
      return JSON.parse(text) as Json;
    } catch {
      return text;
    }
  }
  return text;
}

function ConfigField({ entry, typed, type, unset }: { entry: ConfigKey; typed: string | undefined; type: (text: string) => void; unset: () => void }) {
  const id = useId();
  const current = entry.value == null ? "" : typeof entry.value === "string" ? entry.value : JSON.stringify(entry.value);
  const fallback = entry.default == null ? "" : `default: ${typeof entry.default === "string" ? entry.default : JSON.stringify(entry.default)}`;
  const shared = { id, "aria-describedby": entry.description ? `${id}-about` : undefined, onInput: (event: { currentTarget: { value: string } }) => type(event.currentTarget.value) };
  return (
    <div class="field">
      <label for={id}><span class="field-name">{entry.name}</span><span class="muted">{entry.required ? " required" : ""}{entry.set ? "" : ", not set"}</span></label>
      {entry.description ? <p id={`${id}-about`} class="muted quoted small-text">{entry.description}</p> : null}
      <div class="row nowrap">
        {entry.kind === "boolean" ? (
          <select id={id} value={typed ?? (current || "")} onChange={(event) => type(event.currentTarget.value)}><option value="">not set</option><option value="true">yes</option><option value="false">no</option></select>
        ) : (
          entry.secret ? <input {...shared} type="password" autocomplete="new-password" value={typed ?? ""} placeholder={entry.set ? "•••• set; type to replace it" : "secret"} />
            : <input {...shared} autocomplete="off" value={typed ?? current} placeholder={fallback} />
        )}
        {entry.set ? <button type="button" class="small" aria-label={`Unset ${entry.name}`} onClick={unset}>Unset</button> : null}
      </div>
    </div>
  );
}
