// A list that draws only the rows that can be seen, so that its length does not matter. Rows have known heights.
import { type ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

const BEYOND = 8; // rows drawn above and below what can be seen

export interface Row { key: string; height: number }

export function VirtualList<T extends Row>({ rows, draw, label, role = "list", end, active }: {
  rows: T[];
  draw: (row: T, index: number) => ComponentChildren;
  label: string;
  role?: "list" | "table";
  end?: () => void; // the last row can be seen
  active?: string; // the key of a row to keep in view
}) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const tops = useMemo(() => {
    const list = new Array<number>(rows.length + 1);
    list[0] = 0;
    rows.forEach((row, index) => (list[index + 1] = list[index]! + row.height));
    return list;
  }, [rows]);

  useLayoutEffect(() => {
    const node = box.current!;
    const look = () => setView({ top: node.scrollTop, height: node.clientHeight });
    look();
    const watch = new ResizeObserver(look);
    watch.observe(node);
    node.addEventListener("scroll", look, { passive: true });
    return () => { watch.disconnect(); node.removeEventListener("scroll", look); };
  }, []);

  useEffect(() => {
    const index = active === undefined ? -1 : rows.findIndex((row) => row.key === active);
    const node = box.current!;
    if (index < 0) return;
    if (tops[index]! < node.scrollTop) node.scrollTop = tops[index]!;
    else if (tops[index + 1]! > node.scrollTop + node.clientHeight) node.scrollTop = tops[index + 1]! - node.clientHeight;
  }, [active]);

  const first = Math.max(0, below(tops, view.top) - BEYOND);
  const last = Math.min(rows.length, below(tops, view.top + view.height) + 1 + BEYOND);
  useEffect(() => {
    if (end && rows.length && last >= rows.length) end();
  }, [last, rows.length]);

  return (
    <div class="virtual" ref={box} role={role} aria-label={label} tabIndex={-1}>
      <div class="virtual-all" role="presentation" style={{ height: `${tops[rows.length]}px` }}>
        {rows.slice(first, last).map((row, index) => (
          <div
            key={row.key} class="virtual-row" role={role === "list" ? "listitem" : "row"}
            aria-setsize={role === "list" ? rows.length : undefined} aria-posinset={role === "list" ? first + index + 1 : undefined}
            aria-rowindex={role === "table" ? first + index + 1 : undefined}
            style={{ transform: `translateY(${tops[first + index]}px)`, height: `${row.height}px` }}
          >{draw(row, first + index)}</div>
        ))}
      </div>
    </div>
  );
}

function below(tops: number[], y: number): number {
  let low = 0;
  let high = tops.length - 1;
  while (low < high) {
    const half = (low + high + 1) >> 1;
    if (tops[half]! <= y) low = half;
    else high = half - 1;
  }
  return low;
}
