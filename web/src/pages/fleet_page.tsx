// The fleet that this host joined: its workers, and the plugins that they offer.
import { useEffect } from "preact/hooks";
import type { FleetPlugin, FleetView, FleetWorker } from "../base/shapes";
import { count, seconds, type Sign } from "../base/say";
import { useData } from "../base/use_data";
import { Empty, ErrorBox, Loading, Mark } from "../parts/basics";

const LOOK_MS = 2000; // workers announce themselves as often

export function FleetPage() {
  const fleet = useData<FleetView>("/fleet");
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && fleet.again(), LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <div class="page"><div class="stack wide">
      <h1 tabIndex={-1} data-start>Fleet</h1>
      {fleet.value ? <Shown fleet={fleet.value} /> : fleet.error ? null : <Loading what="Fleet" />}
      {fleet.error ? <ErrorBox error={fleet.error} again={fleet.again} /> : null}
    </div></div>
  );
}

function Shown({ fleet }: { fleet: FleetView }) {
  if (!fleet.url) {
    return <Empty title="No fleet"><p>This host uses the plugins of this machine only. To use those of other machines, name their fleet in <code>[fleet]</code> of <code>settings.toml</code>; <code>anyplug fleet demo</code> shows how one works.</p></Empty>;
  }
  return (
    <>
      <p class="muted">{count(fleet.workers.length, "worker")}, {count(fleet.plugins.length, "plugin")} at <code class="quoted">{fleet.url}</code></p>
      <section class="stack" aria-label="Workers"><h2>Workers</h2>
        {fleet.workers.length ? (
          <table class="cards">
            <thead><tr><th scope="col">Worker</th><th scope="col">State</th><th scope="col">Calls</th><th scope="col">Plugins</th><th scope="col">Labels</th><th scope="col">Version</th></tr></thead>
            <tbody>{fleet.workers.map((worker) => <Worker key={worker.key} worker={worker} />)}</tbody>
          </table>
        ) : <Empty title="No worker is there"><p>Start one with <code>anyplug worker</code> on a machine whose plugins the fleet may use.</p></Empty>}</section>
      <section class="stack" aria-label="Plugins"><h2>Plugins</h2>
        {fleet.plugins.length ? (
          <table class="cards">
            <thead><tr><th scope="col">Plugin</th><th scope="col">State</th><th scope="col">Tools</th><th scope="col">Runs on</th></tr></thead>
            <tbody>{fleet.plugins.map((plugin) => <Plugin key={`${plugin.name} ${plugin.digest}`} plugin={plugin} />)}</tbody>
          </table>
        ) : <p class="muted">The workers offer no plugins.</p>}</section>
    </>
  );
}

function Worker({ worker }: { worker: FleetWorker }) {
  const problems = Object.entries(worker.problems);
  return (
    <tr>
      <th scope="row"><b class="quoted">{worker.name}</b><p class="muted small-text">up for {seconds(worker.uptime_s)}</p></th>
      <td data-label="State"><Mark sign={stateOf(worker)} /></td>
      <td data-label="Calls">{worker.running} of {worker.places}</td>
      <td data-label="Plugins"><span class="quoted">{worker.plugins.join(", ") || "none can run"}</span>
        {problems.map(([name, why]) => <p key={name} class="muted small-text"><span class="quoted">{name}: {why}</span></p>)}</td>
      <td data-label="Labels" class="quoted">{Object.entries(worker.labels).map(([name, value]) => `${name}=${value}`).sort().join(" ")}</td>
      <td data-label="Version">{worker.version}</td>
    </tr>
  );
}

function stateOf(worker: FleetWorker): Sign {
  if (worker.lag) return ["▲", "behind: it does not know the last decision yet", "warn"];
  return worker.state === "up" ? ["●", "up", "ok"] : ["○", worker.state, "muted"];
}

function Plugin({ plugin }: { plugin: FleetPlugin }) {
  const isApproved = plugin.state === "approved";
  return (
    <tr>
      <th scope="row"><b class="quoted">{plugin.name}</b> <span class="muted quoted">{plugin.version}</span><p class="muted small-text">{plugin.format}, <code>{plugin.digest.slice(0, 12)}</code></p></th>
      <td data-label="State"><Mark sign={isApproved ? ["✓", "approved", "ok"] : ["▲", plugin.state, "warn"]} />
        {isApproved ? null : <p class="muted small-text">Its admin approves it: <code class="quoted">anyplug fleet approve {plugin.name}</code></p>}</td>
      <td data-label="Tools" class="quoted">{plugin.tools.join(", ")}</td>
      <td data-label="Runs on" class="quoted">{plugin.workers.join(", ") || "no worker now"}</td>
    </tr>
  );
}
