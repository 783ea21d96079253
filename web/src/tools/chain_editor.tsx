// Put calls in a row: each can use the results of earlier ones.
import { useState } from "preact/hooks";
import { isCut } from "../base/live";
import { outcomeSign } from "../base/say";
import { Copy, Empty, ErrorBox, Mark } from "../parts/basics";
import { AskedHere } from "../questions_bar";
import { ResultView } from "./result_view";
import { type Arguments, type Step, cancelChain, chain, chainRun, runChain } from "./state";

export function ChainEditor() {
  const [faults, setFaults] = useState<Map<number, string>>(new Map());
  const steps = chain.value;
  const now = chainRun.value;
  const isBusy = now?.isBusy ?? false;
  // Results stand under the steps that they are of: another list of steps has none yet.
  const change = (next: Step[]) => { chainRun.value = null; chain.value = next; };
  const set = (index: number, part: Partial<Step>) => (chain.value = steps.map((step, at) => (at === index ? { ...step, ...part } : step)));
  const move = (index: number, by: number) => {
    const next = [...steps];
    const [step] = next.splice(index, 1);
    next.splice(index + by, 0, step!);
    change(next);
  };
  const read = (): Step[] | null => {
    const found = new Map<number, string>();
    const ready = steps.map((step, index) => {
      const { text, ...rest } = step;
      if (text === undefined) return step;
      try {
        return { ...rest, input: JSON.parse(text || "{}") as Arguments };
      } catch (error) {
        found.set(index, (error as Error).message);
        return step;
      }
    });
    setFaults(found);
    return found.size ? null : ready;
  };
  const run = () => {
    const ready = read();
    if (!ready) return;
    chain.value = ready;
    void runChain(ready);
  };
  if (!steps.length) {
    return <div class="pane-body"><a class="back narrow" href="/tools">‹ Tools</a><Empty title="The chain is empty"><p>Open a tool, fill in its form, and press <b>Add to chain</b>. Later steps can use earlier results: <code>{"{{step1.content}}"}</code>.</p></Empty></div>;
  }
  const outcome = now?.outcome;
  const error = outcome?.error;
  return (
    <div class="pane-body stack">
      <a class="back narrow" href="/tools">‹ Tools</a>
      <header class="row spread"><h1 tabIndex={-1} data-start>Chain</h1>
        <span class="row"><Copy text={() => JSON.stringify(read() ?? steps, null, 2)}>Copy as JSON</Copy><button type="button" class="small" disabled={isBusy} onClick={() => change([])}>Empty it</button></span></header>
      <p class="muted small-text">Use the text of an earlier step as <code>{"{{name.content}}"}</code>, a field of its data as <code>{"{{name.field}}"}</code>, the step before as <code>{"{{lastResult.content}}"}</code>.</p>
      <ol class="plain-list">
        {steps.map((step, index) => (
          <li key={index} class="card">
            <div class="row spread"><h2><span class="muted">{index + 1}</span> <span class="mono quoted">{step.tool}</span></h2>
              <span class="row">
                <button type="button" class="small" aria-label={`Move step ${index + 1} up`} disabled={isBusy || index === 0} onClick={() => move(index, -1)}>↑</button>
                <button type="button" class="small" aria-label={`Move step ${index + 1} down`} disabled={isBusy || index === steps.length - 1} onClick={() => move(index, 1)}>↓</button>
                <button type="button" class="small" aria-label={`Remove step ${index + 1}`} disabled={isBusy} onClick={() => change(steps.filter((_, at) => at !== index))}>Remove</button>
              </span></div>
            <label class="field"><span class="field-name">name of its result</span><input value={step.outputKey} onInput={(event) => set(index, { outputKey: event.currentTarget.value })} /></label>
            <label class="field"><span class="field-name">input</span>
              <textarea class="code text-field" rows={3} spellcheck={false} value={step.text ?? JSON.stringify(step.input, null, 2)} aria-invalid={faults.has(index) ? true : undefined}
                onInput={(event) => set(index, { text: event.currentTarget.value })} /></label>
            {faults.has(index) ? <p class="risk small-text">! {faults.get(index)}</p> : null}
            {now?.steps[index] ? <ResultView result={now.steps[index]} /> : isBusy && now?.steps.length === index ? <p class="row" role="status"><Mark sign={outcomeSign("running")} /></p> : null}
          </li>
        ))}
      </ol>
      <div class="row">
        {isBusy ? <button type="button" class="danger" disabled={now!.isCancelled} onClick={() => void cancelChain()}>{now!.isCancelled ? "Cancelling…" : "Cancel"}</button>
          : <button class="primary" disabled={isCut.value} onClick={run}>Run chain</button>}
      </div>
      {isBusy ? <AskedHere /> : null}
      {now?.error ? <ErrorBox error={now.error} /> : null}
      {outcome && (!outcome.success || outcome.steps.length === steps.length) ? (
        <p role="status" class={outcome.success ? "ok" : "risk"}>{outcome.success ? "✓ All steps are done." : `! The chain ended${outcome.failed_at == null ? "" : ` at step ${outcome.failed_at + 1}`}: `}<span class="quoted">{error ? (typeof error === "string" ? error : error.message) : ""}</span></p>
      ) : null}
    </div>
  );
}
