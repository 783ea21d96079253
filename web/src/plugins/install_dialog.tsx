// Install from a folder, a git address or a zip. It ends at the approval; nothing runs before.
import { useEffect, useId, useState } from "preact/hooks";
import { get, post, query } from "../base/api";
import { installs } from "../base/live";
import type { Install } from "../base/shapes";
import { useData } from "../base/use_data";
import { Dialog, ErrorBox, useAction } from "../parts/basics";

const POLL_MS = 700; // where an event is missed

interface Wish { location: string; ref: string; subdir: string; at: number; shown: string }

export function InstallDialog({ close, done }: { close: () => void; done: (plugin: string) => void }) {
  const [source, setSource] = useState("");
  const [ref, setRef] = useState("");
  const [subdir, setSubdir] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const [id, setId] = useState("");
  const [polled, setPolled] = useState<Install | null>(null);
  const wishes = useData<{ items: Wish[] }>("/installs/requests");
  const action = useAction();
  const field = useId();
  const install = installs.value.get(id) ?? polled;
  const isBusy = action.isBusy || (!!id && install?.state !== "failed" && install?.state !== "installed");

  useEffect(() => {
    if (!id) return;
    const timer = setInterval(() => void get<Install>(`/installs/${id}`).then(setPolled, () => undefined), POLL_MS);
    return () => clearInterval(timer);
  }, [id]);
  useEffect(() => {
    if (install?.state === "installed" && install.plugin) done(install.plugin);
  }, [install?.state]);

  const start = (from = source, at = ref, below = subdir) => action.run(async () => {
    setPolled(null);
    setId("");
    const begun = file && from === source
      ? await post<Install>(`/installs${query({ subdir: below })}`, file)
      : await post<Install>("/installs", { source: from.trim(), ...(at ? { ref: at } : {}), ...(below ? { subdir: below } : {}) });
    setId(begun.id);
  });

  return (
    <Dialog title="Install a plugin" close={close}>
      <form class="form" onSubmit={(event) => { event.preventDefault(); void start(); }}>
        <label class="field" for={field}><span class="field-name">Folder or git address</span>
          <input id={field} value={source} disabled={!!file} placeholder="~/code/my-plugin or https://example.org/plugin.git" autocomplete="off" spellcheck={false} onInput={(event) => setSource(event.currentTarget.value)} /></label>
        <div class="pair">
          <label class="field"><span class="field-name">branch or tag</span><input value={ref} disabled={!!file} onInput={(event) => setRef(event.currentTarget.value)} /></label>
          <label class="field"><span class="field-name">folder in it</span><input value={subdir} onInput={(event) => setSubdir(event.currentTarget.value)} /></label>
        </div>
        <label class="field"><span class="field-name">or a zip file</span><input type="file" accept=".zip,application/zip" onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} /></label>
        {action.error ? <ErrorBox error={action.error} /> : null}
        {install?.error ? <ErrorBox error={install.error} /> : null}
        <p role="status" class="muted quoted">{isBusy ? install?.message || "Fetching…" : ""}</p>
        {install?.warnings?.map((text, index) => <p key={index} class="warn quoted">▲ {text}</p>)}
        <p class="muted small-text">It is copied into anyplug's home. Nothing of it runs: its approval comes next.</p>
        <div class="row"><button class="primary" disabled={isBusy || (!source.trim() && !file)}>{isBusy ? "Installing…" : "Install"}</button></div>
      </form>
      {wishes.value?.items.length ? (
        <section class="stack tight"><h3>Agents asked for these</h3>
          <ul class="plain-list">{wishes.value.items.map((wish) => (
            <li key={`${wish.location} ${wish.ref} ${wish.subdir}`} class="card"><code class="quoted">{wish.shown || wish.location}</code>
              <div class="row"><button type="button" class="small" disabled={isBusy} onClick={() => void start(wish.location, wish.ref, wish.subdir)}>Install</button>
                <button type="button" class="small" onClick={() => void action.run(async () => { await post("/installs/requests/decline", { location: wish.location, ref: wish.ref, subdir: wish.subdir }); wishes.again(); })}>Decline</button></div></li>
          ))}</ul></section>
      ) : null}
    </Dialog>
  );
}
