// The path of a call through its gates, and what confined its process.
import type { CallResult, Gate, Receipt } from "../base/shapes";

const WHO: Record<string, string> = {
  approval: "the plugin's approval", person: "a person", host: "anyplug", named: "the folder was named for this run",
};

export function Gates({ gates, outcome }: { gates: Gate[]; outcome?: string }) {
  if (!gates.length) return <p class="muted">No gate was asked.</p>;
  return (
    <ol class="gates">
      {gates.map((gate, index) => (
        <li key={index} class={gate.allowed ? "ok" : "risk"}>
          <span class="mark-shape" aria-hidden="true">{gate.allowed ? "✓" : "✗"}</span>
          <span>
            <b>{gate.allowed ? "allowed" : "refused"}</b> by {WHO[gate.by] ?? gate.by}
            {gate.reason ? <span class="muted quoted">: {gate.reason}</span> : null}
          </span>
        </li>
      ))}
      {outcome ? <li class="end"><span class="mark-shape" aria-hidden="true">■</span><span>ended: {outcome.replaceAll("_", " ")}</span></li> : null}
    </ol>
  );
}

export function ReceiptView({ receipt }: { receipt: Receipt | null | undefined }) {
  if (!receipt) return <p class="muted">Nothing ran, so nothing was confined.</p>;
  if (!receipt.layers.length) return <p class="risk">■ It ran without a sandbox.</p>;
  const limits = Object.entries(receipt.limits);
  return (
    <dl class="facts">
      <div><dt>sandbox</dt><dd><span class="ok">✓ </span>{receipt.layers.join(", ")}</dd></div>
      {receipt.hosts?.length ? <div><dt>may reach</dt><dd class="quoted">{receipt.hosts.join(", ")}</dd></div> : null}
      {receipt.hosts?.length ? <div><dt>reached</dt><dd class="quoted">{receipt.reached?.join(", ") || "nothing"}</dd></div> : null}
      {limits.length ? <div><dt>limits</dt><dd>{limits.map(([name, most]) => `${name.replaceAll("_", " ")} ${limit(name, most)}`).join(", ")}</dd></div> : null}
      {receipt.landlock || receipt.filter ? <div><dt>kernel</dt><dd>{receipt.landlock ? `Landlock ${receipt.landlock}` : ""}{receipt.filter ? <>{receipt.landlock ? ", " : ""}system calls <code title={receipt.filter}>{receipt.filter.slice(0, 12)}…</code></> : null}</dd></div> : null}
    </dl>
  );
}

function limit(name: string, most: number): string {
  if (name.endsWith("bytes") || most >= 1 << 20) return most >= 1 << 30 ? `${Math.round(most / (1 << 30))} GB` : `${Math.round(most / (1 << 20))} MB`;
  return most.toLocaleString("en");
}

export const gatesOf = (result: CallResult) => result.gates ?? [];
