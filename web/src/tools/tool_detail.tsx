// One tool: its form, its request, its results and the calls made with it.
import { type ComponentType } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, segment } from "../base/api";
import { isCut, questions, running, snapshot } from "../base/live";
import { clock, duration, format, outcomeSign, riskSign, seconds } from "../base/say";
import type { DryRun, Json, Schema, Tool } from "../base/shapes";
import { asError, useFetched } from "../base/use_data";
import { Copy, ErrorBox, Guarded, Loading, Mark, Quoted, Tabs, useAction, useNow } from "../parts/basics";
import { JsonTree } from "../parts/json_tree";
import type { Fault } from "../form/schema_check";
import { AskedHere } from "../questions_bar";
import { ResultView } from "./result_view";
import { type Arguments, type Made, cancel, chain, dryRun, keep, made, run, typed } from "./state";

interface FormParts {
  SchemaForm: ComponentType<{ schema: Schema; value: Arguments; change: (value: Arguments) => void; faults: Fault[] }>;
  check: (schema: Schema, value: Json, root: Schema) => Fault[];
  startValue: (schema: Schema) => Arguments;
}

let formParts: FormParts | null = null;

async function loadForm(): Promise<FormParts> {
  const [form, checking, reading] = await Promise.all([
    import("../form/schema_form"), import("../form/schema_check"), import("../form/schema_reading"),
  ]);
  formParts = { SchemaForm: form.SchemaForm, check: checking.check, startValue: reading.startValue };
  return formParts;
}

export function ToolDetail({ name, back }: { name: string; back: string }) {
  const tool = useFetched<Tool>(async (signal) => (await Promise.all([get<Tool>(`/tools/${segment(name)}`, signal), formParts ?? loadForm()]))[0], [name, snapshot.value]);
  if (!tool.value) return tool.error ? <div class="pane-body"><a href={back}>‹ Back</a><ErrorBox error={tool.error} again={tool.again} /></div> : <Loading what="the tool" />;
  return <Loaded tool={tool.value} form={formParts!} back={back} />;
}

function Loaded({ tool, form, back }: { tool: Tool; form: FormParts; back: string }) {
  const schema = tool.input_schema ?? {};
  const value = typed.value.get(tool.name) ?? form.startValue(schema);
  const [tab, setTab] = useState("form");
  const [text, setText] = useState<string | null>(null);
  const [faults, setFaults] = useState<Fault[]>([]);
  const [request, setRequest] = useState<DryRun | null>(null);
  const action = useAction();
  const box = useRef<HTMLDivElement>(null);
  const calls = made.value.filter((one) => one.tool === tool.name);
  const latest = calls[0];
  const isRunning = !!latest && !latest.result;

  const change = (next: Arguments) => {
    keep(tool.name, next);
    setText(null);
    if (faults.length) setFaults(form.check(schema, next, schema));
  };
  const readText = (): Arguments | null => {
    if (text === null) return value;
    try {
      const parsed = JSON.parse(text || "{}") as unknown;
      if (typeof parsed === "object" && parsed && !Array.isArray(parsed)) return parsed as Arguments;
      setFaults([{ at: "", says: "must be an object" }]);
    } catch (error) {
      setFaults([{ at: "", says: asError(error).message }]);
    }
    return null;
  };
  const checked = (): Arguments | null => {
    const values = readText();
    if (!values) return null;
    const found = form.check(schema, values, schema);
    setFaults(found);
    if (found.length) {
      setTimeout(() => box.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
      return null;
    }
    return values;
  };
  const start = (isChecked = true) => {
    if (isRunning || !tool.callable || isCut.value) return;
    const values = isChecked ? checked() : readText();
    if (!values) return;
    if (!isChecked) setFaults([]);
    setRequest(null);
    void run(tool.name, values);
  };
  const show = () => {
    const values = readText();
    if (values) void action.run(async () => setRequest(await dryRun(tool.name, values)));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); start(); }
  };
  const asText = text ?? JSON.stringify(value, null, 2);

  return (
    <div class="pane-body stack" ref={box} onKeyDown={onKeyDown}>
      <a class="back narrow" href={back}>‹ Tools</a>
      <header class="stack tight">
        <div class="row spread">
          <h1 class="mono quoted" tabIndex={-1} data-start>{tool.name}</h1>
          <span class="row">{tool.risk.map((risk) => <Mark key={risk} sign={riskSign(risk)} />)}</span>
        </div>
        <p class="muted small-text">
          of <a href={`/plugins/${encodeURIComponent(tool.plugin_id)}`}><span class="quoted">{tool.plugin}</span></a> ({format(tool.format)})
          {tool.is_async ? ", runs as a job" : ""}{tool.tier === 2 ? ", asks before it runs" : ""}
        </p>
        <Quoted lines>{tool.description}</Quoted>
      </header>
      {tool.callable ? null : (
        <div class="box ask"><p>{`${tool.plugin} is ${tool.state}, so its tools cannot run.`}</p>
          <div class="row"><a class="button small" href={`/plugins/${encodeURIComponent(tool.plugin_id)}#changes`}>Review {tool.plugin}</a></div></div>
      )}
      <Tabs label="Arguments" chosen={tab} choose={setTab} tabs={[
        { id: "form", label: "Form", render: () => text !== null ? (
          <div class="box"><p>The arguments were typed as JSON.</p><div class="row"><button type="button" class="small" onClick={() => { const values = readText(); if (values) change(values); }}>Use them in the form</button></div></div>
        ) : <form class="form" onSubmit={(event) => { event.preventDefault(); start(); }} noValidate><Guarded of={tool.name} instead={<p class="box warn">▲ No form can be made of this schema. Type the arguments in the JSON tab.</p>}><form.SchemaForm schema={schema} value={value} change={change} faults={faults} /></Guarded></form> },
        { id: "json", label: "JSON", render: () => (
          <textarea class="code" aria-label="Arguments as JSON" rows={Math.min(20, Math.max(5, asText.split("\n").length + 1))} spellcheck={false} value={asText} onInput={(event) => setText(event.currentTarget.value)} />
        ) },
        { id: "schema", label: "Schema", render: () => <JsonTree value={schema as Json} name="schema" /> },
      ]} />
      {faults.length ? (
        <div class="box risk" role="alert"><p><b>Not sent.</b> Check the arguments:</p>
          <ul>{faults.slice(0, 8).map((fault, index) => <li key={index}>{fault.at ? <code class="quoted">{fault.at.slice(1).replaceAll("/", ".")} </code> : null}<span class="quoted">{fault.says}</span></li>)}</ul>
          {tool.callable && faults[0]!.at ? <div class="row"><button type="button" class="small" onClick={() => start(false)}>Run anyway</button></div> : null}</div>
      ) : null}
      <div class="row actions">
        {isRunning ? <button type="button" class="danger" onClick={() => void cancel(latest.id)} disabled={latest.isCancelled}>{latest.isCancelled ? "Cancelling…" : "Cancel"}</button>
          : <button class="primary" disabled={!tool.callable || isCut.value} onClick={() => start()} aria-keyshortcuts="Control+Enter">Run</button>}
        <button type="button" onClick={show} disabled={action.isBusy}>Show request</button>
        <button type="button" onClick={() => { const values = readText(); if (values) chain.value = [...chain.value, { tool: tool.name, input: values, outputKey: `step${chain.value.length + 1}` }]; }}>Add to chain</button>
        <span class="muted small-text wide-only"><kbd>Ctrl Enter</kbd> runs</span>
      </div>
      {chain.value.length ? <p class="small-text" role="status">The chain has {chain.value.length} {chain.value.length === 1 ? "step" : "steps"}. <a href="/tools?chain=1">Open it</a></p> : null}
      {action.error ? <ErrorBox error={action.error} /> : null}
      {request ? <RequestView request={request} close={() => setRequest(null)} /> : null}
      {isRunning ? <Running call={latest} /> : null}
      {isRunning ? <AskedHere tool={tool.name} /> : null}
      {latest?.result ? <ResultView key={latest.id} call={latest} result={latest.result} /> : null}
      {calls.length ? <History calls={calls} change={change} /> : null}
    </div>
  );
}

function Running({ call }: { call: Made }) {
  const now = useNow(250);
  const report = [...running.value.values()].find((one) => one.id === call.id);
  const { progress, total, message } = report ?? {};
  const isAsking = questions.value.some((question) => question.kind === "console" && question.tool === call.tool);
  return (
    <div class="card" role="status">
      <p class="row"><Mark sign={outcomeSign(isAsking ? "waiting" : "running")} />{isAsking ? <span>for your answer,</span> : null}<span>{seconds(now / 1000 - call.at)}</span></p>
      {progress === undefined ? null : total ? <progress value={progress} max={total} aria-label="Progress" /> : <p>{progress}</p>}
      {message ? <Quoted lines>{message}</Quoted> : null}
    </div>
  );
}

function RequestView({ request, close }: { request: DryRun; close: () => void }) {
  const { request: sent } = request;
  return (
    <section class="card" aria-label="Request">
      <div class="row spread"><h2>Request, not sent</h2><button type="button" class="small" onClick={close}>Close</button></div>
      <p>{request.allowed ? (request.would_ask ? "It would run after your answer to a question." : "It would run.") : "It would not run."}</p>
      {request.why_not ? <ErrorBox error={request.why_not} /> : null}
      {request.violations.length ? <ul class="warn">{request.violations.map((text, index) => <li key={index} class="quoted">{text}</li>)}</ul> : null}
      {sent ? (
        <dl class="facts">
          {sent.command?.length ? <div><dt>runs</dt><dd><code class="quoted">{sent.command.join(" ")}</code></dd></div> : null}
          {sent.cwd ? <div><dt>in</dt><dd><code class="quoted">{sent.cwd}</code></dd></div> : null}
          {sent.stdin ? <div><dt>reads</dt><dd><pre class="block quoted">{sent.stdin}</pre></dd></div> : null}
          {sent.frame ? <div><dt>gets</dt><dd><JsonTree value={sent.frame} /></dd></div> : null}
          {sent.environment?.length ? <div><dt>variables</dt><dd class="quoted">{sent.environment.join(", ")}</dd></div> : null}
          {sent.timeout_s ? <div><dt>at most</dt><dd>{seconds(sent.timeout_s)}</dd></div> : null}
          {sent.note ? <div><dt>note</dt><dd class="quoted">{sent.note}</dd></div> : null}
        </dl>
      ) : null}
      <div class="row"><Copy text={request.as_command}>Copy as command line</Copy><Copy text={request.as_python}>Copy as Python</Copy></div>
      <pre class="block quoted">{request.as_command}</pre>
    </section>
  );
}

function History({ calls, change }: { calls: Made[]; change: (values: Arguments) => void }) {
  const list = useMemo(() => calls.slice(0, 20), [calls]);
  const [fault, setFault] = useState("");
  useEffect(() => setFault(""), [calls.length]);
  const copy = async (call: Made, kind: "as_command" | "as_python") => {
    try {
      const request = await dryRun(call.tool, call.arguments);
      await navigator.clipboard.writeText(request[kind]);
      setFault("Copied");
    } catch (error) {
      setFault(asError(error).message);
    }
  };
  return (
    <section class="stack tight" aria-label="Calls made here">
      <h2>Calls made here <span class="muted small-text">kept until this page is closed</span></h2>
      <p class="small-text muted" role="status">{fault}</p>
      <ul class="plain-list">
        {list.map((call) => (
          <li key={call.id} class="made">
            <span class="row"><Mark sign={outcomeSign(call.result ? (call.result.error?.code ?? (call.result.is_error ? "tool_error" : "done")) : "running")} />
              <span class="muted small-text">{clock(call.at)}{call.result ? `, ${duration(call.result.duration_ms)}` : ""}</span>
              {call.result?.record ? <a href={`/activity/${call.result.record}`}>#{call.result.record}</a> : null}</span>
            <code class="quoted one-line">{JSON.stringify(call.arguments)}</code>
            <span class="row">
              <button type="button" class="small" onClick={() => { change(call.arguments); void run(call.tool, call.arguments); }}>Run again</button>
              <button type="button" class="small" onClick={() => change(call.arguments)}>Edit</button>
              <button type="button" class="small" onClick={() => void copy(call, "as_command")}>Copy as command line</button>
              <button type="button" class="small" onClick={() => void copy(call, "as_python")}>Copy as Python</button>
              <button type="button" class="small" onClick={() => (chain.value = [...chain.value, { tool: call.tool, input: call.arguments, outputKey: `step${chain.value.length + 1}` }])}>Add to chain</button>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
