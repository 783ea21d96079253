// Fetch for a component: what was fetched before stays on screen until the new answer is there.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get } from "./api";

export interface Data<T> { value: T | undefined; error: ApiError | undefined; isLoading: boolean; again: () => Promise<void> }

export function asError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError("error", error instanceof Error ? error.message : String(error));
}

/** Fetch with a function, again whenever one of `on` changes. */
export function useFetched<T>(fetchIt: (signal: AbortSignal, hear: (value: T) => void) => Promise<T>, on: unknown[]): Data<T> {
  const [state, setState] = useState<{ value?: T; error?: ApiError; isLoading: boolean }>({ isLoading: true });
  const [round, setRound] = useState(0);
  const first = useRef<unknown>(on[0]);
  const waiting = useRef<(() => void)[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    const isOther = first.current !== on[0];
    first.current = on[0];
    setState((old) => (isOther ? { isLoading: true } : { ...old, isLoading: true }));
    fetchIt(stop.signal, (value) => !stop.signal.aborted && setState({ value, isLoading: true })).then(
      (value) => !stop.signal.aborted && setState({ value, isLoading: false }),
      (error: unknown) => !stop.signal.aborted && setState((old) => ({ ...old, error: asError(error), isLoading: false })),
    ).finally(() => !stop.signal.aborted && waiting.current.splice(0).forEach((done) => done()));
    return () => stop.abort();
  }, [...on, round]);
  return { value: state.value, error: state.error, isLoading: state.isLoading, again: () => new Promise((done) => { waiting.current.push(done); setRound((n) => n + 1); }) };
}

/** Fetch one address of the API; with null, nothing. */
export function useData<T>(path: string | null, ...on: unknown[]): Data<T> {
  return useFetched<T>(
    (signal) => (path === null ? new Promise<T>(() => undefined) : get<T>(path, signal)),
    [path, ...on],
  );
}
