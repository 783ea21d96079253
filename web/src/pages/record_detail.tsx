// One record of the audit: who called what, which gates it passed, what confined it.
import { duration, format, moment, outcomeSign } from "../base/say";
import { segment } from "../base/api";
import type { AuditRecord } from "../base/shapes";
import { useData } from "../base/use_data";
import { Copy, ErrorBox, Loading, Mark } from "../parts/basics";
import { Gates, ReceiptView } from "../parts/gates";

export function RecordDetail({ number, back }: { number: string; back: string }) {
  const record = useData<AuditRecord>(`/records/${segment(number)}`);
  if (!record.value) return <div class="pane-body"><a href={back}>‹ Back</a>{record.error ? <ErrorBox error={record.error} again={record.again} /> : <Loading what="the record" />}</div>;
  const one = record.value;
  const isCall = one.kind === "call";
  const digests = ([["code", one.digest], ["arguments", one.arguments], ["output", one.output]] as const).filter(([, value]) => value);
  const unsigned = one.notes.slice(one.notes_by.length); // the others stand in the path
  const isPolicy = one.by.startsWith("policy");
  return (
    <div class="pane-body stack">
      <div class="row spread"><h2>Record #{one.number}</h2><a class="button small" href={back}>Close</a></div>
      <p class="row"><Mark sign={outcomeSign(one.outcome)} />{isCall ? <span>{duration(one.duration_ms)}</span> : null}<span class="muted">{moment(one.at)}</span></p>
      {one.reason && !one.gates.some((gate) => gate.reason === one.reason) ? <p class="box"><span class="quoted lines">{one.reason}</span></p> : null}
      <dl class="facts">
        {isCall ? <div><dt>tool</dt><dd>{one.tool.startsWith("/") ? <code class="quoted">{one.tool}</code> : <a class="mono quoted" href={`/tools/${encodeURIComponent(one.tool)}`}>{one.tool}</a>}</dd></div> : <div><dt>decision</dt><dd class="quoted">{one.tool}</dd></div>}
        {one.plugin ? <div><dt>plugin</dt><dd><a href={`/plugins/${encodeURIComponent(one.plugin)}`}><span class="quoted">{one.plugin}</span></a> <span class="muted">{format(one.format)}</span></dd></div> : null}
        <div><dt>caller</dt><dd><span class="quoted">{one.agent || one.caller}</span> {one.attachment !== one.caller ? <span class="muted quoted">{one.attachment}</span> : null}</dd></div>
        {one.callers.length ? <div><dt>called by</dt><dd class="quoted">{one.callers.join(" → ")}</dd></div> : null}
        {one.project ? <div><dt>in</dt><dd><code class="quoted">{one.project}</code></dd></div> : null}
      </dl>
      <section class="stack tight"><h3>{isCall ? "Path through the gates" : "Who decided"}</h3><Gates gates={one.gates} {...(isCall ? { outcome: one.outcome } : {})} />
        {isPolicy ? <p><a href="/policy">See the policies</a></p> : null}</section>
      {unsigned.length ? <section class="stack tight"><h3>Notes</h3><ul>{unsigned.map((note, index) => <li key={index} class="quoted">{note}</li>)}</ul></section> : null}
      {isCall ? <section class="stack tight"><h3>Sandbox receipt</h3><ReceiptView receipt={one.held_by} /></section> : null}
      {digests.length ? <section class="stack tight"><h3>Digests</h3>
        <dl class="facts">
          {digests.map(([name, value]) => (
            <div key={name}><dt>{name}</dt><dd class="row nowrap"><code>{value.slice(0, 16)}…</code><Copy text={value}>Copy</Copy></dd></div>
          ))}
        </dl>{isCall ? <p class="muted small-text">Arguments and output themselves are not stored.</p> : null}</section> : null}
    </div>
  );
}
