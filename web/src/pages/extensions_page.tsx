// Extensions: their panels, slash commands and notes.
import { useEffect, useId, useState } from "preact/hooks";
import { post } from "../base/api";
import { notes, panelKey, panels, snapshot } from "../base/live";
import { search, setSearch } from "../base/route";
import { clock } from "../base/say";
import type { CommandResult, SlashCommand } from "../base/shapes";
import { useData } from "../base/use_data";
import { Copy, Empty, ErrorBox, useAction } from "../parts/basics";
import { AskedHere } from "../questions_bar";
import { PanelView } from "../parts/panel_view";

export function ExtensionsPage() {
  const commands = useData<{ items: SlashCommand[] }>("/commands", snapshot.value);
  const asked = search.value.get("command") ?? "";
  const [line, setLine] = useState(asked);
  const [result, setResult] = useState<CommandResult | null>(null);
  const [opened, setOpened] = useState("");
  const action = useAction();
  const field = useId();
  useEffect(() => { if (asked) setLine(asked); }, [asked]);
  const run = () => action.run(async () => {
    setResult(null);
    const text = line.trim().startsWith("/") ? line.trim() : `/${line.trim()}`;
    const answer = await post<CommandResult>("/commands", { line: text });
    setResult(answer);
    if (answer.panel) {
      panels.value = new Map(panels.value).set(panelKey(answer.panel), answer.panel);
      setOpened(panelKey(answer.panel));
    }
    setLine("");
    if (asked) setSearch({ command: "" });
  });
  const list = [...panels.value.values()];
  return (
    <div class="page"><div class="stack wide">
      <h1 tabIndex={-1} data-start>Extensions</h1>
      <form class="card" onSubmit={(event) => { event.preventDefault(); void run(); }}>
        <label for={field}><b>Run a command</b></label>
        <div class="row nowrap"><input id={field} list="commands" class="mono" placeholder="/" autocomplete="off" spellcheck={false} value={line} onInput={(event) => setLine(event.currentTarget.value)} />
          <datalist id="commands">{commands.value?.items.map((command) => <option key={command.name} value={`/${command.name}`} />)}</datalist>
          <button class="primary" disabled={!line.trim() || action.isBusy}>{action.isBusy ? "Running…" : "Run"}</button></div>
        {commands.value?.items.length ? (
          <ul class="plain-list tight">{commands.value.items.map((command) => (
            <li key={command.name}><button type="button" class="small mono" onClick={() => { setLine(`/${command.name} `); document.getElementById(field)?.focus(); }}>/{command.name}</button>{" "}
              <span class="muted quoted">{command.description}</span> <span class="muted small-text">of <a href={`/plugins/${encodeURIComponent(command.plugin_id || command.plugin)}`}><span class="quoted">{command.plugin}</span></a></span></li>
          ))}</ul>
        ) : <p class="muted">{commands.error ? commands.error.message : commands.value ? "No extension that runs offers a command." : ""}</p>}
        {action.isBusy ? <AskedHere /> : null}
        {action.error ? <ErrorBox error={action.error} /> : null}
        {result ? <Outcome result={result} /> : null}
      </form>
      <section class="stack" aria-label="Panels"><h2>Panels</h2>
        {list.length ? <div class="columns">{list.map((panel) => <PanelView key={panelKey(panel)} panel={panel} takesFocus={panelKey(panel) === opened} />)}</div>
          : <Empty title="No panel is open"><p class="muted">Some commands open a panel; it is shown here and takes keys.</p></Empty>}</section>
      {notes.value.length ? (
        <section class="stack tight"><h2>Notes</h2>
          <ul class="plain-list tight">{notes.value.map((note, index) => (
            <li key={index}><span class="muted small-text">{clock(note.at / 1000)}</span> <b class="quoted">{note.plugin}</b> <span class={{ error: "risk", warn: "warn", success: "ok" }[note.level] ?? "muted"}>{note.level}</span>: <span class="quoted lines">{note.message}</span></li>
          ))}</ul></section>
      ) : null}
    </div></div>
  );
}

function Outcome({ result }: { result: CommandResult }) {
  if (result.error) return <ErrorBox error={result.error} />;
  return (
    <div class="box ok" role="status">
      {result.action === "display" ? <pre class="block quoted">{result.display}</pre> : null}
      {result.action === "prompt" ? <p>It wants this sent to the model: <span class="quoted lines">{result.prompt}</span></p> : null}
      {result.action === "insert" ? <p>It inserts: <span class="quoted lines">{result.insert}</span></p> : null}
      {result.action === "open_panel" ? <p>✓ Its panel is open below.</p> : null}
      {result.action === "noop" ? <p>✓ Done.</p> : null}
      {result.notes.map((note, index) => <p key={index} class="quoted lines">{note.message}</p>)}
      {result.prompt || result.insert || result.display ? <div class="row"><Copy text={result.prompt || result.insert || result.display}>Copy</Copy></div> : null}
    </div>
  );
}
