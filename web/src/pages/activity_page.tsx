// Activity: every call of every caller, as it happens and as it was recorded.
import { type ComponentType } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, query } from "../base/api";
import { recorded, running } from "../base/live";
import { parts, search, setSearch } from "../base/route";
import { count, duration, moment, outcomeSign, seconds } from "../base/say";
import type { AuditRecord, Page, RunningCall, Stats } from "../base/shapes";
import { asError, useData } from "../base/use_data";
import { Empty, ErrorBox, Loading, Mark, useNow } from "../parts/basics";
import { type Row, VirtualList } from "../parts/virtual_list";
import { RecordDetail } from "./record_detail";

const FILTERS = ["q", "tool", "plugin", "outcome", "caller", "since", "until"] as const;
const PAGE = 200;
const ROW_PX = 38;
const NARROW_ROW_PX = 58;
const NARROW = matchMedia("(max-width: 760px)");
const TYPING_MS = 250;
const STATS_MS = 3000; // between two counts of a busy host

type ListRow = Row & ({ record: AuditRecord } | { call: RunningCall });

function useRecords(filters: string, isPaused: boolean) {
  const [state, setState] = useState<{ items: AuditRecord[]; next: string | null; error?: Error; isLoading: boolean }>({ items: [], next: null, isLoading: true });
  const busy = useRef(false);
  const sought = useRef(filters);
  sought.current = filters;
  const load = async (cursor: string | null, keep: AuditRecord[]) => {
    if (busy.current) return;
    busy.current = true;
    try {
      let page = await fetched(filters, cursor);
      // The host looks through some records at a time: go on until something fits.
      while (!page.items.length && page.next && sought.current === filters) page = await fetched(filters, page.next);
      if (sought.current !== filters) return;
      setState({ items: cursor ? [...keep, ...page.items] : merged(page.items, keep), next: cursor || !keep.length ? page.next : state.next, isLoading: false });
    } catch (error) {
      setState((old) => ({ ...old, error: asError(error), isLoading: false }));
    } finally {
      if (sought.current === filters) busy.current = false;
    }
  };
  useEffect(() => {
    setState({ items: [], next: null, isLoading: true });
    busy.current = false;
    void load(null, []);
  }, [filters]);
  useEffect(() => {
    if (!isPaused && recorded.value) void load(null, state.items);
  }, [recorded.value, isPaused]);
  return { ...state, more: () => { if (state.next && !busy.current) void load(state.next, state.items); } };
}

function fetched(filters: string, cursor: string | null): Promise<Page<AuditRecord>> {
  return get(`/records${filters}${filters ? "&" : "?"}limit=${PAGE}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
}

function merged(fresh: AuditRecord[], old: AuditRecord[]): AuditRecord[] {
  const oldest = fresh.at(-1)?.number ?? Infinity;
  const top = old[0]?.number ?? -1;
  return oldest > top + 1 ? fresh : [...fresh, ...old.filter((one) => one.number < oldest)];
}

export function ActivityPage() {
  const number = parts()[1] ?? "";
  const [isPaused, pause] = useState(false);
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const change = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", change);
    return () => NARROW.removeEventListener("change", change);
  }, []);
  const set = Object.fromEntries(FILTERS.map((name) => [name, search.value.get(name) ?? ""]));
  const filters = query(set);
  const records = useRecords(filters, isPaused);
  const live = isPaused ? [] : [...running.value.values()].filter((call) => (!set.tool || call.tool.includes(set.tool)) && (!set.plugin || call.plugin === set.plugin) && !set.outcome && !set.q);
  const height = narrow ? NARROW_ROW_PX : ROW_PX;
  const rows = useMemo((): ListRow[] => [
    ...live.map((call): ListRow => ({ key: call.call, height, call })),
    ...records.items.map((record): ListRow => ({ key: String(record.number), height, record })),
  ], [records.items, live.length, running.value, isPaused, height]);
  const kept = search.value.toString() ? `?${search.value}` : "";
  const isCharts = search.value.has("charts");
  const [isFiltering, filter] = useState(filters !== "");

  return (
    <div class="activity">
      <header class="activity-head">
        <div class="row spread"><h1 tabIndex={-1} data-start>Activity</h1>
          <span class="row">
            {narrow ? <button type="button" class="small" aria-expanded={isFiltering} aria-controls="filters" onClick={() => filter(!isFiltering)}>Filters</button> : null}
            <button type="button" class="small" aria-pressed={isCharts} onClick={() => setSearch({ charts: isCharts ? "" : "1" })}>Charts</button>
            <button type="button" class="small" aria-pressed={isPaused} onClick={() => pause(!isPaused)}>{isPaused ? "Go on" : "Pause"}</button>
          </span></div>
        {!narrow || isFiltering ? <Filters set={set} /> : null}
        {isCharts ? <ChartsView filters={set} isPaused={isPaused} /> : null}
      </header>
      <div class={`activity-body${number ? " has-detail" : ""}`}>
        <section class="pane records" aria-label="Calls">
          {records.error && !records.items.length ? <ErrorBox error={records.error} /> : null}
          {records.isLoading && !records.items.length ? <Loading what="records" /> : null}
          {!records.isLoading && !rows.length && !records.error ? <Empty title={filters ? "No call fits" : "No call yet"}><p class="muted">{filters ? "Take a filter away." : "Each call of a person, an agent or a plugin is recorded here, refused ones too."}</p></Empty> : null}
          {rows.length ? <VirtualList rows={rows} label="Calls" active={number} end={records.more} draw={(row) => "call" in row ? <RunningRow call={row.call} /> : (
            <a class="record" data-row href={`/activity/${row.record.number}${kept}`} aria-current={String(row.record.number) === number ? "true" : undefined}>
              <span class="muted number">#{row.record.number}</span><span class="muted when">{moment(row.record.at)}</span>
              <Mark sign={outcomeSign(row.record.outcome)} quiet /><span class="muted">{row.record.kind === "call" ? duration(row.record.duration_ms) : ""}</span>
              <What record={row.record} /><span class="muted quoted">{row.record.agent || row.record.caller}</span>
            </a>
          )} /> : null}
        </section>
        {number ? <section class="pane detail-pane" aria-label="Record"><RecordDetail key={number} number={number} back={`/activity${kept}`} /></section> : null}
      </div>
    </div>
  );
}

/** A tool; of a decision about a plugin, what was decided. */
function What({ record }: { record: AuditRecord }) {
  if (record.kind === "call") return <code class="quoted">{record.tool}</code>;
  return <span><span class="ask">{record.tool}</span> <b class="quoted">{record.plugin}</b></span>;
}

function RunningRow({ call }: { call: RunningCall }) {
  const now = useNow(500);
  return (
    <div class="record">
      <span class="muted number">now</span><span class="muted when">{moment(call.at)}</span><Mark sign={outcomeSign(call.state ?? "running")} quiet />
      <span class="muted">{seconds(now / 1000 - call.at)}</span><code class="quoted">{call.tool}</code>
      <span class="muted quoted">{call.message || call.agent || call.attachment}</span>
    </div>
  );
}

function Filters({ set }: { set: Record<string, string> }) {
  const timer = useRef(0);
  const type = (name: string) => (event: { currentTarget: { value: string } }) => {
    const value = event.currentTarget.value;
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setSearch({ [name]: value }), TYPING_MS);
  };
  const text = (name: string, label: string, placeholder = "") => (
    <label>{label}<input {...(name === "q" ? ({ type: "search" } as object) : {})} value={set[name]} placeholder={placeholder} spellcheck={false} autocomplete="off" onInput={type(name)} /></label>
  );
  return (
    <div class="filters" id="filters" role="search">
      {text("q", "text")}{text("tool", "tool")}{text("plugin", "plugin")}
      <label>outcome
        <select value={set.outcome} onChange={(event) => setSearch({ outcome: event.currentTarget.value })}>
          <option value="">any</option><option value="done">done</option><option value="failed">failed</option><option value="refused">refused</option>
          <option value="denied">denied</option><option value="not_approved">not approved</option><option value="tool_error">tool error</option><option value="timed_out">timed out</option><option value="cancelled">cancelled</option>
        </select></label>
      {text("caller", "caller", "cli, mcp, console")}
      <label>since
        <select value={set.since} onChange={(event) => setSearch({ since: event.currentTarget.value })}>
          <option value="">ever</option><option value="1h">1 hour</option><option value="today">today</option><option value="1d">1 day</option><option value="7d">7 days</option><option value="30d">30 days</option>
        </select></label>
    </div>
  );
}

function ChartsView({ filters, isPaused }: { filters: Record<string, string>; isPaused: boolean }) {
  const [Charts, setCharts] = useState<ComponentType<{ stats: Stats; isByTool: boolean }> | null>(null);
  const isByTool = search.value.get("charts") === "tools";
  const [round, setRound] = useState(0);
  useEffect(() => void import("../parts/charts").then((module) => setCharts(() => module.StatsCharts)), []);
  useEffect(() => {
    if (isPaused) return;
    const timer = setTimeout(() => setRound(recorded.value), STATS_MS);
    return () => clearTimeout(timer);
  }, [recorded.value, isPaused]);
  const stats = useData<Stats>(`/stats${query({ since: filters.since || "1d", until: filters.until, tool: filters.tool, plugin: filters.plugin, buckets: 60 })}`, round);
  if (stats.error && !stats.value) return <ErrorBox error={stats.error} again={stats.again} />;
  if (!stats.value || !Charts) return <Loading what="charts" />;
  const { value } = stats;
  return (
    <>
      <p class="numbers"><span><b>{value.calls.toLocaleString("en")}</b> {value.calls === 1 ? "call" : "calls"}</span><span class="risk"><b>{value.errors.toLocaleString("en")}</b> failed</span><span class="ask"><b>{value.refused.toLocaleString("en")}</b> refused</span><span class="muted">{filters.since ? "" : "in the last day"}{value.is_cut ? ", counted in part" : ""}</span></p>
      <div class="row" role="group" aria-label="Charts of">
        <button type="button" class="small" aria-pressed={!isByTool} onClick={() => setSearch({ charts: "1" })}>All together</button>
        <button type="button" class="small" aria-pressed={isByTool} onClick={() => setSearch({ charts: "tools" })}>By tool</button>
      </div>
      <Charts stats={value} isByTool={isByTool} />
      {value.tools.length ? (
        <details><summary>By tool ({count(value.tools.length, "tool")})</summary>
          <div class="scroll" tabIndex={0} role="group" aria-label="By tool"><table>
            <thead><tr><th scope="col">Tool</th><th scope="col">Calls</th><th scope="col">Failed</th><th scope="col">Refused</th><th scope="col">Half below</th><th scope="col">95% below</th><th scope="col">Longest</th></tr></thead>
            <tbody>{value.tools.map((tool) => (
              <tr key={`${tool.plugin}/${tool.tool}`}><th scope="row"><button type="button" class="small plain mono quoted" aria-pressed={filters.tool === tool.tool} title="Chart only this tool" onClick={() => setSearch({ tool: filters.tool === tool.tool ? "" : tool.tool })}>{tool.tool}</button></th><td>{tool.calls}</td><td>{tool.errors}</td><td>{tool.refused}</td>
                {[tool.p50, tool.p95, tool.longest].map((ms, index) => <td key={index}>{ms == null ? "" : duration(ms)}</td>)}</tr>
            ))}</tbody></table></div></details>
      ) : null}
    </>
  );
}
