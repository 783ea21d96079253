// A panel of an extension. While it has the focus it gets the keys; Shift+Tab leaves it and Esc closes it.
import { useEffect, useRef } from "preact/hooks";
import { post, remove, segment } from "../base/api";
import type { Panel } from "../base/shapes";
import { ErrorBox, useAction } from "./basics";
import { spans } from "./terminal_text";

type Key = [name: string, text: string];

const NAMES: Record<string, string> = {
  ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right", Enter: "enter", Tab: "tab", Backspace: "backspace",
  Delete: "delete", Home: "home", End: "end", PageUp: "pageup", PageDown: "pagedown",
};
const PAD: [label: string, spoken: string, key: Key][] = [
  ["↑", "Up", ["up", ""]], ["↓", "Down", ["down", ""]], ["←", "Left", ["left", ""]], ["→", "Right", ["right", ""]],
  ["Enter", "Enter", ["enter", ""]], ["Space", "Space", ["rune", " "]], ["Tab", "Tab", ["tab", ""]], ["⌫", "Backspace", ["backspace", ""]],
];

/** Send keys one batch after another, so that they arrive in the order in which they were pressed. */
function useKeys(at: string, failed: (work: () => Promise<unknown>) => Promise<boolean>) {
  const waiting = useRef<Key[]>([]);
  const isSending = useRef(false);
  const send = async () => {
    if (isSending.current) return;
    isSending.current = true;
    while (waiting.current.length) {
      const keys = waiting.current.splice(0);
      if (!(await failed(() => post(`${at}/keys`, { keys })))) break;
    }
    isSending.current = false;
  };
  return (...keys: Key[]) => { waiting.current.push(...keys); void send(); };
}

export function PanelView({ panel, takesFocus }: { panel: Panel; takesFocus?: boolean }) {
  const screen = useRef<HTMLDivElement>(null);
  const at = `/panels/${segment(panel.owner)}/${segment(panel.id)}`;
  const action = useAction();
  const press = useKeys(at, action.run);
  useEffect(() => { if (takesFocus) screen.current?.focus(); }, [takesFocus]);
  const close = () => void action.run(() => remove(at));
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.metaKey || event.isComposing || (event.key === "Tab" && event.shiftKey)) return;
    if (event.ctrlKey && event.key.toLowerCase() === "k") return;
    if (event.key === "Escape") { event.preventDefault(); close(); return; }
    if (event.ctrlKey && event.key.toLowerCase() === "c") {
      if (!String(getSelection())) { event.preventDefault(); close(); }
      return;
    }
    if (event.ctrlKey || event.altKey) return;
    const name = NAMES[event.key];
    if (name) press([name, ""]);
    else if ([...event.key].length === 1) press(["rune", event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const onPaste = (event: ClipboardEvent) => {
    event.preventDefault();
    const paste = event.clipboardData?.getData("text/plain") ?? "";
    if (paste) void action.run(() => post(`${at}/keys`, { keys: [], paste }));
  };
  return (
    <section class="panel-box" aria-label={`Panel ${panel.title || panel.id} of ${panel.owner}`}>
      <header class="row spread nowrap"><span><b class="quoted">{panel.title || panel.id}</b> <span class="muted small-text">extension <span class="quoted">{panel.owner}</span></span></span>
        <button type="button" class="small" onClick={close}>Close</button></header>
      <div class="panel-screen quoted" ref={screen} role="application" tabIndex={0} data-keys aria-label={`${panel.title || panel.id}. Keys go here. Shift+Tab leaves, Escape closes.`} onKeyDown={onKeyDown} onPaste={onPaste}>
        {panel.lines.map((line, index) => <div key={index}>{spans(line).map((span, place) => <span key={place} class={span.look}>{span.text}</span>)}{line ? null : " "}</div>)}
      </div>
      {panel.footer ? <footer class="muted small-text"><span class="quoted">{panel.footer}</span></footer> : null}
      <div class="keypad" role="group" aria-label="Keys">
        {PAD.map(([label, spoken, key]) => <button type="button" key={label} class="small" aria-label={spoken} onClick={() => press(key)}>{label}</button>)}
      </div>
      <p class="muted small-text pad">While the panel has the focus, keys go to it. <kbd>Shift Tab</kbd> leaves, <kbd>Esc</kbd> closes.</p>
      {action.error ? <ErrorBox error={action.error} /> : null}
    </section>
  );
}
