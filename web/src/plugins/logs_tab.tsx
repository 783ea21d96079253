// What a plugin logs, as it logs it.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, segment } from "../base/api";
import type { ApiError } from "../base/api";
import { ofThisTab } from "../base/page_key";
import type { Plugin } from "../base/shapes";
import { ErrorBox } from "../parts/basics";

const MOST_LINES = 5000;
const TAIL = 500;

export function LogsTab({ plugin }: { plugin: Plugin }) {
  const [lines, setLines] = useState<string[]>([]);
  const [path, setPath] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  const [isPaused, pause] = useState(false);
  const [words, setWords] = useState("");
  const box = useRef<HTMLPreElement>(null);
  const at = `/plugins/${segment(plugin.id)}/logs`;
  useEffect(() => {
    if (isPaused) return;
    let isOn = true;
    get<{ path: string; lines: string[] }>(`${at}?tail=${TAIL}`).then(
      (log) => { if (isOn) { setLines(log.lines); setPath(log.path); } },
      (failure: ApiError) => isOn && setError(failure),
    );
    const source = new EventSource(ofThisTab(`/api/v1${at}/follow`));
    source.addEventListener("log", (event) => {
      const more = (JSON.parse((event as MessageEvent<string>).data) as { lines: string[] }).lines;
      setLines((old) => [...old, ...more].slice(-MOST_LINES));
    });
    return () => { isOn = false; source.close(); };
  }, [plugin.id, isPaused]);
  useEffect(() => {
    const node = box.current;
    if (node && !isPaused) node.scrollTop = node.scrollHeight;
  }, [lines]);
  const shown = words ? lines.filter((line) => line.toLowerCase().includes(words.toLowerCase())) : lines;
  if (error) return <ErrorBox error={error} />;
  return (
    <>
      <div class="row nowrap"><input type="search" aria-label="Filter lines" placeholder="Filter lines" value={words} onInput={(event) => setWords(event.currentTarget.value)} />
        <button type="button" class="small" aria-pressed={isPaused} onClick={() => pause(!isPaused)}>{isPaused ? "Follow" : "Pause"}</button></div>
      {shown.length ? <pre class="block log quoted" ref={box} tabIndex={0} role="log" aria-label="Log">{shown.join("\n")}</pre> : <p class="muted">{words ? "No line has this." : "Nothing was logged yet."}</p>}
      {path ? <p class="muted small-text">All of it: <code class="quoted">{path}</code></p> : null}
    </>
  );
}
