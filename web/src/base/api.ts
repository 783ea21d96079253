// Requests to the HTTP API. Every failure becomes an ApiError with a code, a message and what to do next.
import { pageKey } from "./page_key";
import type { Page } from "./shapes";

export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint = "",
    readonly status = 0,
    readonly body: Record<string, unknown> = {},
  ) {
    super(message);
  }
}

const ROOT = "/api/v1";
const LARGEST_PAGE = 500;

async function request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const isBytes = body instanceof Blob;
  const init: RequestInit = { method, credentials: "same-origin", headers: { accept: "application/json", "x-anyplug-page": pageKey() } };
  if (signal) init.signal = signal;
  if (method !== "GET") {
    init.headers = { ...init.headers, "content-type": isBytes ? "application/zip" : "application/json" };
    init.body = isBytes ? body : JSON.stringify(body ?? {});
  }
  let answer: Response;
  try {
    answer = await fetch(ROOT + path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("offline", "anyplug does not answer", "start it with `anyplug ui`");
  }
  if (answer.status === 204) return undefined as T;
  const text = await answer.text();
  let said: Record<string, unknown> = {};
  try {
    said = text ? (JSON.parse(text) as Record<string, unknown>) : {};
  } catch {
    if (answer.ok) throw new ApiError("bad_output", "the answer is not JSON", "", answer.status);
  }
  if (answer.ok) return said as T;
  const error = (said.error ?? {}) as { code?: string; message?: string; hint?: string };
  if (answer.status === 401) {
    throw new ApiError("no_session", "this page has no session", "run `anyplug ui` in a terminal", 401);
  }
  throw new ApiError(
    error.code ?? "error",
    error.message ?? `HTTP ${answer.status}`,
    error.hint ?? "",
    answer.status,
    said,
  );
}

export const get = <T>(path: string, signal?: AbortSignal) => request<T>("GET", path, undefined, signal);
export const post = <T>(path: string, body?: unknown, signal?: AbortSignal) => request<T>("POST", path, body, signal);
export const put = <T>(path: string, body: unknown) => request<T>("PUT", path, body);
export const remove = <T>(path: string) => request<T>("DELETE", path, {});

/** One segment of a path, whatever characters it has. */
export const segment = (name: string) => encodeURIComponent(name);

/** A query string from what is set. */
export function query(values: Record<string, string | number | undefined | null>): string {
  const set = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value != null && value !== "") set.set(name, String(value));
  const text = set.toString();
  return text ? `?${text}` : "";
}

/** All items of a list, page after page; `hear` gets what is there after each page. */
export async function all<T>(path: string, hear?: (items: T[]) => void, signal?: AbortSignal): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null = null;
  do {
    const joint: string = path.includes("?") ? "&" : "?";
    const next: string = cursor ? `&cursor=${segment(cursor)}` : "";
    const page: Page<T> = await get<Page<T>>(`${path}${joint}limit=${LARGEST_PAGE}${next}`, signal);
    items.push(...page.items);
    cursor = page.next;
    if (cursor) hear?.([...items]);
  } while (cursor);
  return items;
}
