// Charts of numbers over time. The same numbers are in a table for those who cannot see them.
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock, duration, moment } from "../base/say";
import { settings } from "../base/settings";
import type { Series, Stats } from "../base/shapes";

const HEIGHT_PX = 150;
const DAY_S = 86_400;
const TONES = ["accent", "warn", "ok", "ask", "risk"]; // one for each line
const SHORT_DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export interface Line { label: string; tone: string; values: (number | null)[]; bars?: boolean }

export function Chart({ title, at, lines, unit }: { title: string; at: number[]; lines: Line[]; unit?: "ms" }) {
  const box = useRef<HTMLDivElement>(null);
  const { theme } = settings.value;
  useEffect(() => {
    const node = box.current!;
    const style = getComputedStyle(document.documentElement);
    const probe = document.createElement("i");
    node.append(probe);
    const colour = (tone: string) => {
      probe.style.color = style.getPropertyValue(`--${tone}`);
      return getComputedStyle(probe).color;
    };
    const axis: uPlot.Axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
    const bars = uPlot.paths.bars!({ size: [0.8, 40] });
    const plot = new uPlot({
      width: node.clientWidth, height: HEIGHT_PX, cursor: { y: false }, legend: { show: false },
      scales: { y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [{ ...axis, values: (_plot, ticks, _axis, _space, step) => ticks.map((tick) => at_time(tick, step)) }, { ...axis, size: 68, values: (_plot, ticks) => ticks.map((tick) => (unit ? duration(tick) : Number.isInteger(tick) ? String(tick) : "")) }],
      series: [{}, ...lines.map((line): uPlot.Series => ({
        label: line.label, stroke: colour(line.tone), width: 2, spanGaps: false, points: { show: line.values.includes(null), size: 5 },
        ...(line.bars ? { fill: colour(line.tone), paths: bars } : {}),
      }))],
    }, [at, ...lines.map((line) => (line.bars ? line.values.map((value) => value || null) : line.values))], node);
    probe.remove();
    const watch = new ResizeObserver(() => plot.setSize({ width: node.clientWidth, height: HEIGHT_PX }));
    watch.observe(node);
    return () => { watch.disconnect(); plot.destroy(); };
  }, [at, lines, theme]);
  return (
    <figure class="chart">
      <figcaption class="row spread"><b>{title}</b><span class="row small-text">{lines.map((line) => <span key={line.label} class={`${line.tone} quoted`}>■ {line.label}</span>)}</span></figcaption>
      <div class="chart-plot" ref={box} aria-hidden="true" />
      <span class="hidden-text">{title}: {lines.map((line) => `${line.label} ${told(at, line, unit)}`).join("; ")}</span>
    </figure>
  );
}

/** A time on an axis: the day where the ticks are days, else the hour and minute. */
function at_time(at: number, step: number): string {
  const date = new Date(at * 1000);
  return step >= DAY_S || date.getHours() + date.getMinutes() === 0 ? SHORT_DAY.format(date) : clock(at).slice(0, 5);
}

function told(at: number[], line: Line, unit?: string): string {
  let most = -1;
  line.values.forEach((value, index) => { if (value && (most < 0 || value > (line.values[most] ?? 0))) most = index; });
  if (most < 0) return "none";
  const value = line.values[most]!;
  return `at most ${unit ? duration(value) : value}, at ${moment(at[most]!)}`;
}

/** The charts: of all calls together, or with a line for each of the tools called most. */
export function StatsCharts({ stats, isByTool }: { stats: Stats; isByTool: boolean }) {
  const { series, at } = stats;
  const most = useMemo(() => stats.tools.slice(0, TONES.length), [stats]);
  const lines = (of: keyof Series): Line[] => most.map((tool, index) => ({ label: tool.tool, tone: TONES[index]!, values: tool.series[of] }));
  const byTool = useMemo(() => ({ calls: lines("calls"), errors: lines("errors"), p95: lines("p95") }), [most]);
  const together = useMemo((): { calls: Line[]; taken: Line[] } => ({
    calls: [
      { label: "calls", tone: "accent", values: series.calls, bars: true }, { label: "failed", tone: "risk", values: series.errors, bars: true },
      { label: "refused", tone: "ask", values: series.refused, bars: true },
    ],
    taken: [{ label: "half below", tone: "ok", values: series.p50 }, { label: "95% below", tone: "warn", values: series.p95 }],
  }), [series]);
  if (isByTool) {
    return (
      <>
        <div class="charts">
          <Chart title="Calls" at={at} lines={byTool.calls} />
          <Chart title="Failed calls" at={at} lines={byTool.errors} />
          <Chart title="Time taken, 95% below" at={at} unit="ms" lines={byTool.p95} />
        </div>
        {stats.tools.length > most.length ? <p class="muted small-text">The {most.length} tools called most; filter by tool to see another.</p> : null}
      </>
    );
  }
  return (
    <div class="charts">
      <Chart title="Calls" at={at} lines={together.calls} />
      <Chart title="Time taken" at={at} unit="ms" lines={together.taken} />
    </div>
  );
}
