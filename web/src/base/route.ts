// The address of the page is its state: every view can be linked, reloaded and gone back to.
import { batch, signal } from "@preact/signals";

export const path = signal(location.pathname);
export const search = signal(new URLSearchParams(location.search));
export const hash = signal(decoded(location.hash.slice(1)));

function read(): void {
  batch(() => {
    path.value = location.pathname;
    search.value = new URLSearchParams(location.search);
    hash.value = decoded(location.hash.slice(1));
  });
}

/** Go to an address of this page. */
export function go(url: string, replace = false): void {
  if (replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  read();
}

/** Change parts of the query, keeping the rest; empty values are removed. */
export function setSearch(values: Record<string, string>, replace = true): void {
  const next = new URLSearchParams(search.value);
  for (const [name, value] of Object.entries(values)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  const text = next.toString();
  go(path.value + (text ? `?${text}` : "") + location.hash, replace);
}

/** The parts of the path, decoded: `/tools/mcp.a.b` is ["tools", "mcp.a.b"]. */
export function parts(): string[] {
  return path.value.split("/").filter(Boolean).map(decoded);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function followLinks(): void {
  addEventListener("popstate", read);
  addEventListener("hashchange", read);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.pathname.startsWith("/api/")) return;
    event.preventDefault();
    go(link.pathname + link.search + link.hash);
  });
}
