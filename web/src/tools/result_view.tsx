// What a call came to, by kind: text, Markdown, JSON, table, image, sound, file. All of it is a stranger's.
import { useEffect, useState } from "preact/hooks";
import { ofThisTab } from "../base/page_key";
import { duration, outcomeSign } from "../base/say";
import type { Block, CallResult, Json } from "../base/shapes";
import { Copy, ErrorBox, Mark, Quoted, Tabs, type Tab } from "../parts/basics";
import { Gates, ReceiptView, gatesOf } from "../parts/gates";
import { JsonTree } from "../parts/json_tree";
import { CureButton } from "../parts/problems";
import type { Made } from "./state";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);
const SOUNDS = new Set(["audio/mpeg", "audio/wav", "audio/x-wav", "audio/ogg", "audio/webm", "audio/mp4", "audio/flac", "audio/aac"]);
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}\s*$/;
const FIRST_LETTERS = 20_000;
const MOST_ROWS = 500;
const MOST_COLUMNS = 30;
const LIKE_MARKDOWN = /^(#{1,6} |[-*] \S|\d+\. |> |```|\|.+\|)|\*\*\S|\[[^\]]+\]\(/m;

export function ResultView({ call, result }: { call?: Made; result: CallResult }) {
  const [tab, setTab] = useState("result");
  const outcome = result.error?.code ?? (result.is_error ? "tool_error" : "done");
  const warnings = Array.isArray(result.metadata?.warnings) ? result.metadata.warnings.map(String) : [];
  const verdict = gatesOf(result).at(-1);
  const tabs: Tab[] = [
    { id: "result", label: "Result", render: () => <Shown result={result} /> },
    { id: "raw", label: "Raw", render: () => (
      <>
        <div class="row"><Copy text={() => JSON.stringify(result, null, 2)}>Copy JSON</Copy></div>
        <JsonTree value={result as unknown as Json} name="result" />
      </>
    ) },
    { id: "gates", label: "Gates", render: () => <><Gates gates={gatesOf(result)} outcome={outcome} /><ReceiptView receipt={result.receipt} /></> },
  ];
  return (
    <section class="card result" aria-label="Result">
      <p class="row" role="status">
        <Mark sign={outcomeSign(outcome)} />
        <span>{duration(result.duration_ms)}</span>
        {verdict ? <span class="muted">{verdict.allowed ? "allowed" : "refused"} by {verdict.by}</span> : null}
        {result.record ? <a href={`/activity/${result.record}`}>#{result.record}</a> : null}
        {call?.isCancelled && outcome === "done" ? <span class="muted">it had ended before it could be cancelled</span> : null}
      </p>
      {warnings.map((text, index) => <p key={index} class="warn"><span aria-hidden="true">▲ </span><Quoted lines>{text}</Quoted></p>)}
      {result.error ? <ErrorBox error={result.error}>{result.cure ? <CureButton cure={result.cure} /> : null}</ErrorBox> : null}
      <Tabs label="Result" tabs={tabs} chosen={tab} choose={setTab} />
    </section>
  );
}

function Shown({ result }: { result: CallResult }) {
  if (!result.content.length && result.structured == null) return <p class="muted">{result.is_error ? "No output." : "It ended without output."}</p>;
  const only = result.content.length === 1 ? result.content[0]! : null;
  if (only?.type === "text" && only.text === result.error?.message && result.structured == null) return <p class="muted">No other output.</p>;
  const isSameText = only?.type === "text" && only.text === result.structured;
  const isRepeated = result.structured != null && only !== null && sameJson(only, result.structured);
  return (
    <>
      {isRepeated ? null : result.content.map((block, index) => <BlockView key={index} block={block} />)}
      {result.structured == null || isSameText ? null : <><h3>Structured output</h3><DataView value={result.structured} /></>}
    </>
  );
}

function sameJson(block: Block, value: Json): boolean {
  try {
    return block.type === "text" && JSON.stringify(JSON.parse(block.text)) === JSON.stringify(value);
  } catch {
    return false;
  }
}

function BlockView({ block }: { block: Block }) {
  switch (block.type) {
    case "text": return <TextView text={block.text} />;
    case "image": return <Picture kind={block.mime_type} data={block.data} />;
    case "audio": return <Sound kind={block.mime_type} data={block.data} />;
    case "file": return (
      <p class="row"><span class="mono quoted">{block.name}</span><span class="muted quoted">{block.mime_type}</span>
        {block.download ? <a class="button small" href={ofThisTab(block.download)} download={block.name}>Download</a> : <code class="quoted">{block.path}</code>}</p>
    );
    case "resource": return (
      <div class="stack tight">
        <p class="small-text"><code class="quoted">{block.uri}</code> <span class="muted quoted">{block.mime_type}</span></p>
        {block.text ? <TextView text={block.text} /> : block.data ? (IMAGES.has(block.mime_type) ? <Picture kind={block.mime_type} data={block.data} /> : <SaveButton name={block.name || "resource"} data={block.data} />) : <Quoted>{block.description}</Quoted>}
      </div>
    );
    default: return <JsonTree value={block as unknown as Json} />;
  }
}

const isData = (data: string) => data.length % 4 === 0 && BASE64.test(data);

function Picture({ kind, data }: { kind: string; data: string }) {
  const [isBad, setBad] = useState(false);
  const clean = data.replace(/\s/g, "");
  if (isBad || !IMAGES.has(kind) || !isData(clean)) {
    return <div class="row"><span class="muted">An image of type <span class="quoted">{kind}</span>, which is not shown here.</span><SaveButton name={`image.${kind.replace(/[^a-z0-9]/gi, "-")}`} data={clean} /></div>;
  }
  return <div class="stack tight"><img class="picture" alt="Image from the tool" src={`data:${kind};base64,${clean}`} onError={() => setBad(true)} /><div class="row"><SaveButton name={`image.${kind.slice(6)}`} data={clean} /></div></div>;
}

function Sound({ kind, data }: { kind: string; data: string }) {
  const clean = data.replace(/\s/g, "");
  if (!SOUNDS.has(kind) || !isData(clean)) return <div class="row"><span class="muted">Sound of type <span class="quoted">{kind}</span></span><SaveButton name="sound" data={clean} /></div>;
  return <audio controls src={`data:${kind};base64,${clean}`} aria-label="Sound from the tool" />;
}

function SaveButton({ name, data }: { name: string; data: string }) {
  const save = () => {
    let bytes: Uint8Array<ArrayBuffer>;
    try {
      bytes = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
    } catch {
      bytes = new TextEncoder().encode(data);
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  return <button type="button" class="small" onClick={save}>Download</button>;
}

/** A text, and the other ways to read it. */
function TextView({ text }: { text: string }) {
  const parsed = parse(text);
  const ways = ["text", ...(parsed !== undefined ? ["data"] : []), ...(LIKE_MARKDOWN.test(text) && parsed === undefined ? ["markdown"] : [])];
  const [way, setWay] = useState(ways.length > 1 ? ways[1]! : "text");
  const labels: Record<string, string> = { text: "as text", data: "as JSON", markdown: "as Markdown" };
  return (
    <div class="stack tight">
      <div class="row">
        {ways.length > 1 ? ways.map((one) => <button type="button" key={one} class="small" aria-pressed={one === way} onClick={() => setWay(one)}>{labels[one]}</button>) : null}
        <Copy text={text}>Copy</Copy>
      </div>
      {way === "data" ? <DataView value={parsed as Json} /> : way === "markdown" ? <Markdown source={text} /> : <Plain text={text} />}
    </div>
  );
}

function parse(text: string): Json | undefined {
  const start = text.trimStart()[0];
  if (start !== "{" && start !== "[") return undefined;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

function Plain({ text }: { text: string }) {
  const [isWhole, setWhole] = useState(false);
  const isLong = text.length > FIRST_LETTERS && !isWhole;
  return (
    <>
      <pre class="block quoted" tabIndex={0} role="group" aria-label="Text">{isLong ? text.slice(0, FIRST_LETTERS) : text}</pre>
      {isLong ? <button type="button" class="small" onClick={() => setWhole(true)}>Show all {text.length.toLocaleString("en")} characters</button> : null}
    </>
  );
}

export function Markdown({ source }: { source: string }) {
  const [html, setHtml] = useState<string | null>(null);
  useEffect(() => {
    let isOn = true;
    void import("./markdown").then((module) => module.rendered(source)).then((found) => isOn && setHtml(found));
    return () => { isOn = false; };
  }, [source]);
  if (html === null) return <pre class="block quoted">{source}</pre>;
  return <div class="markdown quoted" dangerouslySetInnerHTML={{ __html: html }} />;
}

function columns(value: Json): string[] {
  if (!Array.isArray(value) || !value.length) return [];
  const found = new Set<string>();
  for (const row of value.slice(0, MOST_ROWS)) {
    if (typeof row !== "object" || row === null || Array.isArray(row)) return [];
    for (const key of Object.keys(row)) found.add(key);
  }
  return found.size <= MOST_COLUMNS ? [...found] : [];
}

function DataView({ value }: { value: Json }) {
  const heads = columns(value);
  const [isTable, setTable] = useState(heads.length > 0);
  if (!heads.length) return <JsonTree value={value} />;
  const rows = value as Record<string, Json>[];
  return (
    <div class="stack tight">
      <div class="row">
        <button type="button" class="small" aria-pressed={isTable} onClick={() => setTable(true)}>Table</button>
        <button type="button" class="small" aria-pressed={!isTable} onClick={() => setTable(false)}>Tree</button>
      </div>
      {isTable ? (
        <div class="scroll" tabIndex={0} role="group" aria-label="Table">
          <table>
            <thead><tr>{heads.map((head) => <th key={head} scope="col" class="quoted">{head}</th>)}</tr></thead>
            <tbody>{rows.slice(0, MOST_ROWS).map((row, index) => (
              <tr key={index}>{heads.map((head) => <td key={head} class="quoted">{row[head] === undefined ? "" : typeof row[head] === "string" ? row[head] : JSON.stringify(row[head])}</td>)}</tr>
            ))}</tbody>
          </table>
          {rows.length > MOST_ROWS ? <p class="muted">The first {MOST_ROWS} of {rows.length.toLocaleString("en")} rows.</p> : null}
        </div>
      ) : <JsonTree value={value} />}
    </div>
  );
}
