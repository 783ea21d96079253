// The small parts that every view is made of.
import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../base/api";
import { setSearch } from "../base/route";
import type { Sign } from "../base/say";

const SKELETON_AFTER_MS = 200;
const SAID_MS = 2000;

/** A sign: shape and word, in a colour that repeats them. */
export function Mark({ sign, quiet }: { sign: Sign; quiet?: boolean }) {
  return (
    <span class={`mark ${sign[2]}${quiet ? " quiet" : ""}`}>
      <span aria-hidden="true">{sign[0]}</span> {sign[1]}
    </span>
  );
}

/** What a stranger wrote, as running text. */
export function Quoted({ children, lines }: { children: string; lines?: boolean }) {
  return <span class={lines ? "quoted lines" : "quoted"}>{children}</span>;
}

/** Show something else where a part fails: a stranger's data must not take the page away. */
export class Guarded extends Component<{ of: string; instead: ComponentChildren; children: ComponentChildren }, { hasFailed: boolean }> {
  override state = { hasFailed: false };
  static override getDerivedStateFromError = () => ({ hasFailed: true });
  override componentDidUpdate(before: { of: string }) {
    if (this.state.hasFailed && before.of !== this.props.of) this.setState({ hasFailed: false });
  }
  override render() {
    return this.state.hasFailed ? this.props.instead : this.props.children;
  }
}

/** A message or hint: what stands between backticks is code. */
export function Told({ children }: { children: string }) {
  return <span class="quoted lines">{children.split("`").map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}</span>;
}

export function ErrorBox({ error, again, children }: {
  error: { message: string; hint?: string } | ApiError;
  again?: () => void;
  children?: ComponentChildren;
}) {
  return (
    <div class="box risk" role="alert">
      <p><span aria-hidden="true">! </span><Quoted lines>{error.message}</Quoted></p>
      {error.hint ? <p class="muted"><Told>{error.hint}</Told></p> : null}
      {again || children ? <div class="row">{again ? <button type="button" onClick={again}>Try again</button> : null}{children}</div> : null}
    </div>
  );
}

/** A placeholder, only if loading takes long enough to notice. */
export function Loading({ what }: { what: string }) {
  const [isShown, show] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => show(true), SKELETON_AFTER_MS);
    return () => clearTimeout(timer);
  }, []);
  return isShown ? (
    <div class="skeleton" role="status"><span class="hidden-text">Loading {what}</span><i /><i /><i /></div>
  ) : null;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><h2>{title}</h2>{children}</div>;
}

/** Copy a text, and say that it was done. */
export function Copy({ text, children }: { text: string | (() => string); children: ComponentChildren }) {
  const [said, say] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : text());
      say("Copied");
    } catch {
      say("Not copied: the browser refused");
    }
    setTimeout(() => say(""), SAID_MS);
  };
  return <button type="button" class="small" onClick={() => void copy()}>{said ? <span role="status">{said}</span> : children}</button>;
}

export interface Tab { id: string; label: ComponentChildren; render: () => ComponentChildren }

/** Tabs whose choice the caller keeps. */
export function Tabs({ tabs, chosen, choose, label }: {
  tabs: Tab[]; chosen: string; choose: (id: string) => void; label: string;
}) {
  const list = useRef<HTMLDivElement>(null);
  const at = Math.max(0, tabs.findIndex((tab) => tab.id === chosen));
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1 : step ? (at + step + tabs.length) % tabs.length : -1;
    if (to < 0) return;
    event.preventDefault();
    choose(tabs[to]!.id);
    (list.current?.children[to] as HTMLElement | undefined)?.focus();
  };
  useEffect(() => {
    const row = list.current;
    const one = row?.children[at] as HTMLElement | undefined;
    if (row && one) row.scrollLeft = one.offsetLeft - row.offsetLeft - (row.clientWidth - one.offsetWidth) / 2;
  }, [at]);
  const tab = tabs[at];
  if (!tab) return null;
  return (
    <>
      <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={onKeyDown}>
        {tabs.map((one, index) => (
          <button type="button"
            key={one.id} role="tab" id={`tab-${one.id}`} aria-selected={index === at} aria-controls={`panel-${one.id}`}
            tabIndex={index === at ? 0 : -1} onClick={() => choose(one.id)}
          >{one.label}</button>
        ))}
      </div>
      <div class="tab-panel" role="tabpanel" id={`panel-${tab.id}`} aria-labelledby={`tab-${tab.id}`} key={tab.id}>
        {tab.render()}
      </div>
    </>
  );
}

export function Switch({ on, change, label, disabled, described }: {
  on: boolean; change: (on: boolean) => void; label: string; disabled?: boolean; described?: string;
}) {
  return (
    <button type="button"
      class="switch" role="switch" aria-checked={on} aria-label={label} aria-describedby={described}
      disabled={disabled} onClick={() => change(!on)}
    ><i aria-hidden="true" /><span>{on ? "on" : "off"}</span></button>
  );
}

/** A text field that filters; what is typed is in the address. */
export function SearchField({ label, name = "q", value, id }: { label: string; name?: string; value: string; id?: string }) {
  return (
    <input
      id={id} class="search" type="search" aria-label={label} placeholder={label} value={value} autocomplete="off"
      spellcheck={false} onInput={(event) => setSearch({ [name]: event.currentTarget.value })}
    />
  );
}

/** Run one thing at a time, and keep its error. */
export function useAction(): {
  isBusy: boolean; error: ApiError | undefined; run: (work: () => Promise<unknown>) => Promise<boolean>; clear: () => void;
} {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | undefined>();
  const run = async (work: () => Promise<unknown>) => {
    setBusy(true);
    setError(undefined);
    try {
      await work();
      return true;
    } catch (failure) {
      setError(failure as ApiError);
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { isBusy, error, run, clear: () => setError(undefined) };
}

/** A dialog that keeps the focus while it is open; Esc closes it. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const node = dialog.current!;
    const before = document.activeElement as HTMLElement | null;
    if (!node.open) node.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog ref={dialog} aria-label={title} onClose={close} onCancel={(event) => { event.preventDefault(); close(); }}>
      <header class="row"><h2>{title}</h2><button type="button" class="small" onClick={close}>Close</button></header>
      {children}
    </dialog>
  );
}

/** The time, as a signal to redraw "3 s ago" by. */
export function useNow(everyMs = 1000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
