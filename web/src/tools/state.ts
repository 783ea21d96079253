// What the tools page keeps while it is open: arguments that were typed, calls that were made, the chain. Arguments may
// hold secrets, so nothing of it is stored.
import { signal } from "@preact/signals";
import { ApiError, post, remove, segment } from "../base/api";
import { onEvent } from "../base/live";
import type { CallResult, DryRun, Failure, Json } from "../base/shapes";

export type Arguments = Record<string, Json>;

export interface Made { id: string; tool: string; arguments: Arguments; at: number; result: CallResult | null; isCancelled: boolean }

export interface Step { tool: string; input: Arguments; outputKey: string; text?: string } // `text`: input as it is typed

const MOST_MADE = 200;

export const typed = signal<Map<string, Arguments>>(new Map());
export const made = signal<Made[]>([]); // the newest first
export const chain = signal<Step[]>([]);

export interface ChainRun {
  id: string; isBusy: boolean; isCancelled: boolean; steps: CallResult[]; error: ApiError | null;
  outcome: null | { success: boolean; failed_at: number | null; error: string | Failure | null; steps: CallResult[] };
}
export const chainRun = signal<ChainRun | null>(null);

export const keep = (tool: string, values: Arguments) => (typed.value = new Map(typed.value).set(tool, values));

const update = (id: string, part: Partial<Made>) =>
  (made.value = made.value.map((one) => (one.id === id ? { ...one, ...part } : one)));

function failed(tool: string, error: ApiError): CallResult {
  const { code, message, hint } = error;
  return {
    tool, plugin: "", format: "", is_error: true, content: [], text: "", structured: null, metadata: {},
    error: { code, message, hint }, duration_ms: 0, gates: [], record: null,
  };
}

/** Call a tool; its outcome is in `made`. */
export async function run(tool: string, values: Arguments): Promise<void> {
  const id = `page-${crypto.randomUUID()}`;
  made.value = [{ id, tool, arguments: values, at: Date.now() / 1000, result: null, isCancelled: false }, ...made.value].slice(0, MOST_MADE);
  try {
    update(id, { result: await post<CallResult>(`/tools/${segment(tool)}/call`, { arguments: values, id }) });
  } catch (error) {
    update(id, { result: failed(tool, error as ApiError) });
  }
}

export async function cancel(id: string): Promise<void> {
  update(id, { isCancelled: true });
  await remove(`/calls/${segment(id)}`).catch(() => undefined); // it has ended meanwhile
}

export const dryRun = (tool: string, values: Arguments) =>
  post<DryRun>(`/tools/${segment(tool)}/dry-run`, { arguments: values });

/** Run the steps; what came of each is in `chainRun` as soon as it has ended. */
export async function runChain(steps: Step[]): Promise<void> {
  const id = `chain-${crypto.randomUUID()}`;
  const is = (part: Partial<ChainRun>) => {
    if (chainRun.value?.id === id) chainRun.value = { ...chainRun.value, ...part };
  };
  chainRun.value = { id, isBusy: true, isCancelled: false, steps: [], error: null, outcome: null };
  const deaf = onEvent(({ event, data }) => {
    const told = data as { id: string; result: CallResult };
    if (event === "chain_step" && told.id === id) is({ steps: [...chainRun.value!.steps, told.result] });
  });
  try {
    const outcome = await post<NonNullable<ChainRun["outcome"]>>("/chains", { id, steps: steps.map(({ tool, input, outputKey }) => ({ tool, input, ...(outputKey ? { outputKey } : {}) })) });
    is({ outcome, steps: outcome.steps.length ? outcome.steps : chainRun.value?.steps ?? [] });
  } catch (error) {
    is({ error: error as ApiError });
  } finally {
    deaf();
    is({ isBusy: false });
  }
}

export async function cancelChain(): Promise<void> {
  const now = chainRun.value;
  if (!now) return;
  chainRun.value = { ...now, isCancelled: true };
  await cancel(now.id);
}
