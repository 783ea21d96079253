// Policy: which rules are loaded, what they say about an event, and what a candidate would have changed.
import { type ComponentType } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import { post } from "../base/api";
import { snapshot } from "../base/live";
import { hash, go } from "../base/route";
import { count, decisionSign, moment } from "../base/say";
import type { Json, Policies, Replay, Trial } from "../base/shapes";
import { useData } from "../base/use_data";
import { Empty, ErrorBox, Loading, Mark, Tabs, useAction } from "../parts/basics";
import { JsonTree } from "../parts/json_tree";
import type { Line } from "../parts/charts";

const EXAMPLES: Record<string, string> = {
  claude: `{\n  "tool_name": "Bash",\n  "tool_input": {"command": "git push --force"}\n}`,
  opencode: `{\n  "tool": "bash",\n  "args": {"command": "git push --force"}\n}`,
  anyplug: `{\n  "tool": "bookmark_add",\n  "args": {"url": "https://example.org"}\n}`,
};
const BUCKETS = 28;

export function PolicyPage() {
  const policies = useData<Policies>("/policies", snapshot.value);
  const tab = hash.value || "loaded";
  return (
    <div class="page"><div class="stack wide">
      <h1 tabIndex={-1} data-start>Policy</h1>
      {policies.error && !policies.value ? <ErrorBox error={policies.error} again={policies.again} /> : null}
      {policies.value ? (
        <Tabs label="Policy" chosen={tab} choose={(id) => go(`/policy#${id}`, true)} tabs={[
          { id: "loaded", label: "Loaded", render: () => <Loaded policies={policies.value!} /> },
          { id: "try", label: "Try an event", render: () => <Try policies={policies.value!} /> },
          { id: "replay", label: "Replay", render: () => <ReplayTab /> },
        ]} />
      ) : policies.error ? null : <Loading what="policies" />}
    </div></div>
  );
}

function Loaded({ policies }: { policies: Policies }) {
  return (
    <>
      {policies.untrusted ? <div class="box warn"><p>▲ <span class="quoted">{policies.untrusted}</span></p></div> : null}
      {policies.problems.map((problem, index) => (
        <div key={index} class={`box ${problem.level === "error" ? "risk" : "warn"}`}><p><span aria-hidden="true">{problem.level === "error" ? "! " : "▲ "}</span><span class="quoted lines">{problem.message}</span></p><p class="muted"><code class="quoted">{problem.file}:{problem.row}</code></p></div>
      ))}
      {policies.policies.length ? (
        <table class="cards">
          <thead><tr><th scope="col">Policy</th><th scope="col">For</th><th scope="col">Decides about</th><th scope="col">Can</th></tr></thead>
          <tbody>{policies.policies.map((policy, index) => (
            <tr key={index}>
              <th scope="row"><b class="quoted">{policy.title || policy.package}</b><p class="muted small-text"><code class="quoted">{policy.builtin ? `built in: ${policy.builtin}` : policy.file}</code></p></th>
              <td data-label="For">{policy.harness}</td>
              <td data-label="Decides about"><span class="quoted">{policy.events.join(", ")}</span> <span class="muted quoted">{policy.tools.length ? policy.tools.join(", ") : "all tools"}</span></td>
              <td data-label="Can" class="quoted">{policy.verbs.join(", ")}</td>
            </tr>
          ))}</tbody>
        </table>
      ) : (
        <Empty title="No policies here"><p>A policy is a rule, written in Rego, that allows, refuses, asks about or changes calls: those of plugins' tools and those that your agents run themselves. Put it into <code>.cupcake/policies</code>, or begin with <code>anyplug policy init</code>.</p></Empty>
      )}
      {policies.places.length ? <p class="muted small-text">Read from <span class="quoted">{policies.places.map((place) => `${place.place} (${count(place.policies, "policy", "policies")} for ${place.harness})`).join("; ")}</span></p> : null}
    </>
  );
}

function Try({ policies }: { policies: Policies }) {
  const harnesses = policies.harnesses.length ? policies.harnesses : ["anyplug"];
  const [harness, setHarness] = useState(harnesses[0]!);
  const [event, setEvent] = useState(EXAMPLES[harness] ?? EXAMPLES.anyplug!);
  const [signals, setSignals] = useState("");
  const [trial, setTrial] = useState<Trial | null>(null);
  const [fault, setFault] = useState("");
  const action = useAction();
  const [eventId, signalsId] = [useId(), useId()];
  const tryIt = () => {
    setFault("");
    setTrial(null);
    let body: Record<string, unknown>;
    try {
      body = { event: JSON.parse(event) as Json, harness, ...(signals.trim() ? { signals: JSON.parse(signals) as Json } : {}) };
    } catch (error) {
      return setFault(`This is not JSON: ${(error as Error).message}`);
    }
    void action.run(async () => setTrial(await post<Trial>("/policies/try", body)));
  };
  return (
    <div class="columns">
      <form class="form" onSubmit={(submit) => { submit.preventDefault(); tryIt(); }} onKeyDown={(key) => { if (key.key === "Enter" && key.ctrlKey) tryIt(); }}>
        <label class="field"><span class="field-name">As this agent would ask</span>
          <select value={harness} onChange={(change) => { const next = change.currentTarget.value; if (event === EXAMPLES[harness]) setEvent(EXAMPLES[next] ?? event); setHarness(next); }}>
            {harnesses.map((name) => <option key={name} value={name}>{name}</option>)}</select></label>
        <label class="field" for={eventId}><span class="field-name">Event</span><textarea id={eventId} class="code" rows={6} spellcheck={false} value={event} onInput={(input) => setEvent(input.currentTarget.value)} /></label>
        <label class="field" for={signalsId}><span class="field-name">Signals</span><span class="muted small-text">the output that policies would ask commands for; nothing runs here</span><textarea id={signalsId} class="code text-field" rows={1} spellcheck={false} placeholder={'{"branch": "main"}'} value={signals} onInput={(input) => setSignals(input.currentTarget.value)} /></label>
        {fault ? <ErrorBox error={{ message: fault }} /> : null}
        {action.error ? <ErrorBox error={action.error} /> : null}
        <div class="row"><button class="primary" disabled={action.isBusy}>Try</button><span class="muted small-text">Nothing runs and nothing is recorded.</span></div>
      </form>
      {trial ? <TrialView trial={trial} /> : <p class="muted">The decision is shown here, with the rules that made it.</p>}
    </div>
  );
}

function TrialView({ trial }: { trial: Trial }) {
  return (
    <section class="card" aria-label="Decision" role="status">
      <p class="row big"><Mark sign={decisionSign(trial.decision)} /></p>
      {trial.reason ? <p class="quoted lines">{trial.reason}</p> : null}
      {trial.in_force && trial.in_force.decision !== trial.decision ? <p class="warn">▲ In force now: {trial.in_force.decision}. <span class="quoted">{trial.in_force.reason}</span></p> : null}
      {trial.findings.length ? (
        <div><h3>Rules that decided</h3><ul>{trial.findings.map((finding, index) => (
          <li key={index}><b>{finding.verb}</b> <span class="quoted">{finding.rule_id}</span> <span class="muted">{finding.severity}</span>: <span class="quoted">{finding.reason}</span><br /><code class="muted quoted">{finding.file}:{finding.row}</code></li>
        ))}</ul></div>
      ) : <p class="muted">No rule applied.</p>}
      {trial.failures?.length ? <div class="warn"><h3>Failed</h3><ul>{trial.failures.map((text, index) => <li key={index} class="quoted">{typeof text === "string" ? text : JSON.stringify(text)}</li>)}</ul></div> : null}
      {trial.notes?.length ? <ul class="muted">{trial.notes.map((text, index) => <li key={index} class="quoted">{text}</li>)}</ul> : null}
      <details><summary>Policies asked, input and all the rest</summary><JsonTree value={trial as unknown as Json} depth={1} /></details>
    </section>
  );
}

function ReplayTab() {
  const [text, setText] = useState("");
  const [name, setName] = useState("candidate.rego");
  const [path, setPath] = useState("");
  const [since, setSince] = useState("7d");
  const [replay, setReplay] = useState<Replay | null>(null);
  const action = useAction();
  const run = () => action.run(async () => {
    setReplay(null);
    setReplay(await post<Replay>("/policies/replay", { since, candidate: text.trim() ? { name, text } : { path: path.trim() } }));
  });
  const read = async (file: File | undefined) => {
    if (!file) return;
    setName(/^[A-Za-z0-9_.-]{1,95}\.rego$/.test(file.name) ? file.name : "candidate.rego");
    setText(await file.text());
  };
  return (
    <>
      <form class="form" onSubmit={(event) => { event.preventDefault(); void run(); }}>
        <p class="muted">What would a new version of a policy have decided about what your agents really did? Nothing is put in force.</p>
        <label class="field"><span class="field-name">Candidate</span><textarea class="code" rows={8} spellcheck={false} placeholder="package cupcake.policies.…" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
        <div class="pair">
          <label class="field"><span class="field-name">or a file from here</span><input type="file" accept=".rego" onChange={(event) => void read(event.currentTarget.files?.[0])} /></label>
          <label class="field"><span class="field-name">or a path on the host</span><input value={path} placeholder=".cupcake" spellcheck={false} disabled={!!text.trim()} onInput={(event) => setPath(event.currentTarget.value)} /></label>
        </div>
        <div class="row"><label class="row inline">events of the last <select class="tiny" value={since} onChange={(event) => setSince(event.currentTarget.value)}><option value="1d">day</option><option value="7d">7 days</option></select></label>
          <button class="primary" disabled={action.isBusy || (!text.trim() && !path.trim())}>{action.isBusy ? "Replaying…" : "Replay"}</button></div>
        {action.error ? <ErrorBox error={action.error} /> : null}
      </form>
      {replay ? <ReplayView replay={replay} /> : null}
    </>
  );
}

function ReplayView({ replay }: { replay: Replay }) {
  const stricter = replay.changes.filter((change) => change.after !== "allow" && change.after !== "modify").length;
  return (
    <section class="stack" aria-label="What would change">
      <p role="status"><b>{count(replay.changes.length, "decision")}</b> of {count(replay.events, "event")} would change; {stricter.toLocaleString("en")} of these would be stopped or asked about.</p>
      {replay.notes.map((note, index) => <p key={index} class="muted quoted">{note}</p>)}
      {replay.changes.length ? (
        <>
          <ReplayChart replay={replay} />
          <div class="scroll" tabIndex={0} role="group" aria-label="Changed decisions"><table>
            <thead><tr><th scope="col">When</th><th scope="col">Tool</th><th scope="col">Before</th><th scope="col">After</th><th scope="col">What</th></tr></thead>
            <tbody>{replay.changes.slice(0, 1000).map((change, index) => (
              <tr key={index}><td class="nowrap-text">{moment(change.at)}</td><td class="quoted">{change.tool}</td><td><Mark sign={decisionSign(change.before)} quiet /></td><td><Mark sign={decisionSign(change.after)} quiet /></td>
                <td><code class="quoted">{change.about}</code>{change.reason ? <p class="muted small-text quoted">{change.reason}</p> : null}</td></tr>
            ))}</tbody></table></div>
        </>
      ) : null}
    </section>
  );
}

function ReplayChart({ replay }: { replay: Replay }) {
  const [Chart, setChart] = useState<ComponentType<{ title: string; at: number[]; lines: Line[] }> | null>(null);
  const [drawn, setDrawn] = useState<{ at: number[]; lines: Line[] } | null>(null);
  useEffect(() => void import("../parts/charts").then((module) => setChart(() => module.Chart)), []);
  useEffect(() => {
    const times = replay.changes.map((change) => change.at);
    const from = Math.min(...times);
    const step = Math.max(60, (Math.max(...times) - from) / BUCKETS);
    const at = Array.from({ length: BUCKETS + 1 }, (_, index) => from + index * step);
    const line = (label: string, tone: string, fits: (after: string) => boolean): Line => {
      const values = at.map(() => 0);
      for (const change of replay.changes) if (fits(change.after)) values[Math.min(BUCKETS, Math.floor((change.at - from) / step))]!++;
      return { label, tone, values, bars: true };
    };
    setDrawn({ at, lines: [
      line("allowed", "ok", (after) => after === "allow" || after === "modify"), line("asked", "ask", (after) => after === "ask"),
      line("stopped", "risk", (after) => after !== "allow" && after !== "modify" && after !== "ask"),
    ] });
  }, [replay]);
  return Chart && drawn ? <Chart title="Decisions that would change" at={drawn.at} lines={drawn.lines} /> : null;
}
