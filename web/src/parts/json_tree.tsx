// JSON as a tree that unfolds; long lists and texts in parts.
import { useState } from "preact/hooks";
import { count } from "../base/say";
import type { Json } from "../base/shapes";

const FIRST_ITEMS = 50;
const FIRST_LETTERS = 2000;
const OPEN_DEPTH = 2;

export function JsonTree({ value, name, depth = 0 }: { value: Json; name?: string; depth?: number }) {
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH);
  const [most, setMost] = useState(FIRST_ITEMS);
  const label = name === undefined ? null : <span class="json-name">{name}: </span>;
  if (value === null || typeof value !== "object") return <div class="json-leaf">{label}<Leaf value={value} /></div>;
  const isList = Array.isArray(value);
  const entries: [string, Json][] = isList ? value.map((item, index) => [String(index), item]) : Object.entries(value);
  const size = isList ? count(entries.length, "item") : count(entries.length, "key");
  if (!entries.length) return <div class="json-leaf">{label}<span>{isList ? "[ ]" : "{ }"}</span></div>;
  return (
    <details class="json" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{label}<span class="muted">{isList ? "list" : "object"}, {size}</span></summary>
      {isOpen ? (
        <div class="json-inside">
          {entries.slice(0, most).map(([key, item]) => <JsonTree key={key} name={key} value={item} depth={depth + 1} />)}
          {entries.length > most ? (
            <button type="button" class="small" onClick={() => setMost(most * 4)}>{count(entries.length - most, "more", "more")}</button>
          ) : null}
        </div>
      ) : null}
    </details>
  );
}

function Leaf({ value }: { value: Json }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof value !== "string") return <span class="json-value">{String(value)}</span>;
  const isLong = value.length > FIRST_LETTERS && !isWhole;
  return (
    <span class="json-text quoted lines">
      "{isLong ? value.slice(0, FIRST_LETTERS) : value}"
      {isLong ? <button type="button" class="small" onClick={() => setWhole(true)}>show all {value.length.toLocaleString("en")} characters</button> : null}
    </span>
  );
}
