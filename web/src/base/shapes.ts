// The shapes of the HTTP API, as far as the page uses them.

export interface Page<T> { items: T[]; next: string | null; total?: number }

export type Risk = string;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Schema = { [key: string]: unknown };

export interface Cure { action: string; label: string; plugin: string; permissions: string[] }
export interface Problem { code: string; message: string; hint: string; level: "error" | "warning"; cure?: Cure | null }
export interface Failure { code: string; message: string; hint: string }
export interface Gate { by: string; allowed: boolean; reason: string }

export interface Status {
  version: string; home: string; project: string; uptime_s: number; is_console: boolean; url: string;
  plugins: number; approved: number; waiting: number; tools: number; running: number; calls: number; errors: number;
  policies: boolean; settings_fault: string; questions: number; fleet: boolean;
}

export interface FleetWorker {
  name: string; key: string; state: string; running: number; places: number; version: string; labels: Record<string, string>;
  plugins: string[]; problems: Record<string, string>; uptime_s: number; lag: number;
}

export interface FleetPlugin {
  name: string; format: string; version: string; state: string; digest: string; tools: string[]; workers: string[];
}

export interface FleetView { url: string; workers: FleetWorker[]; plugins: FleetPlugin[] }

export type State = "new" | "approved" | "denied" | "changed" | "disabled" | "broken" | "shadowed";

export interface PluginEntry {
  id: string; name: string; format: string; format_title: string; version: string; description: string; path: string;
  state: State; health: string; tier: number; tools: string[]; commands: string[]; shadowed_by: string | null;
  problems: Problem[]; stays_up: boolean; is_explicit: boolean; is_builtin: boolean; risk: Risk[];
}

export interface PermissionRow {
  permission: string; description: string; asked: boolean; granted: boolean; default: boolean; is_risky: boolean;
  seen: null | { at: number; calls: number; targets: string[] }; is_observed: boolean; really: string;
}

export interface ConfigKey {
  name: string; description: string; required: boolean; secret: boolean; set: boolean; value: Json; default?: Json;
  kind: string; tools: string[];
}

export interface Process {
  health: string; reason: string; pid: number | null; uptime_s: number | null; restarts: number;
  frames: Record<string, number>; malformed: number; stderr_tail: string; events: string[]; intercepts: string[];
  processes?: Record<string, Process>;
}

export interface Plugin extends PluginEntry {
  found_at: string; changes: string[]; permissions: { asked: string[]; granted: string[] };
  permission_rows: PermissionRow[]; warning: string;
  approval: null | {
    always: boolean; follow: boolean; unconfined: boolean; inherits_environment: boolean; decided: number; since: number;
  };
  seen_in_use: null | { at: number; calls: number };
  confinement: null | {
    state: string; layers: string[]; notes: string[]; shortfalls: { what: string; why: string; cure: string }[];
  };
  config: ConfigKey[]; instructions: string; environment_withheld: Record<string, string>; digest: string;
  process: Process | null; registrations: { kind: string; name: string; active: boolean; shadowed: string | null }[];
  servers?: { name: string; command: string[] | null; url: string | null }[];
  tool_list: Tool[]; command_list: { name: string; description: string }[];
  source: null | { location: string; ref: string; subdir: string; commit: string; at: number }; is_installed: boolean;
  default_grants: string[];
  approval_text: { title: string; could: string[]; if_approved: string; lasts: string; undo: string };
  init: string; launch: string; missing_config: string[];
}

export interface FileChange {
  path: string; change: string; added: number; removed: number; is_text: boolean; diff: string | null; is_cut: boolean;
}

export interface Changes {
  is_known: boolean; since: number; permissions: { added: string[]; removed: string[] };
  tools: { name: string; change: string; diff: string[] }[]; texts: string[]; files: FileChange[]; files_total: number;
  has_snapshot: boolean; digest: string;
}

export interface Tool {
  name: string; model_name: string; plugin: string; plugin_id: string; format: string; title: string;
  description: string; input_schema: Schema | null; output_schema: Schema | null; tier: number; callable: boolean;
  state: State; is_async: boolean; risk: Risk[]; deferred: boolean; namespace: string; arguments?: string;
}

export type Block =
  | { type: "text"; text: string }
  | { type: "image" | "audio"; mime_type: string; data: string }
  | { type: "resource"; uri: string; mime_type: string; text: string; data: string; name: string; description: string }
  | { type: "file"; name: string; mime_type: string; path: string; download?: string };

export interface CallResult {
  tool: string; plugin: string; format: string; is_error: boolean; content: Block[]; text: string; structured: Json;
  metadata: Record<string, Json>; error: Failure | null; duration_ms: number; id?: string; call?: string;
  record?: number | null; gates?: Gate[]; receipt?: Receipt | null; cure?: Cure | null;
}

export interface Receipt {
  layers: string[]; landlock: number; filter: string; limits: Record<string, number>; hosts?: string[];
  reached?: string[];
}

export interface DryRun {
  arguments: Json; violations: string[]; would_ask: boolean; allowed: boolean; why_not: Failure | null;
  request: null | {
    kind: string; command?: string[]; cwd?: string; stdin?: string; environment?: string[]; timeout_s?: number;
    frame?: Json; note?: string;
  };
  as_command: string; as_python: string;
}

export interface AuditRecord {
  number: number; call: string; at: number; attachment: string; tool: string; agent: string; project: string;
  callers: string[]; plugin: string; format: string; digest: string; arguments: string; verdict: string; by: string;
  reason: string; notes: string[]; notes_by: string[]; held_by: Receipt | null; outcome: string; duration_ms: number;
  output: string; caller: string; gates: Gate[]; kind: string; folder: string;
}

export interface RunningCall {
  call: string; id: string; tool: string; plugin: string; attachment: string; agent: string; callers: string[];
  at: number; state?: string; progress?: number; total?: number | null; message?: string;
}

export interface EndedCall extends RunningCall {
  outcome: string; verdict: string; by: string; reason: string; duration_ms: number; gates: Gate[];
}

export type Word = "once" | "attachment" | "always" | "no";

export interface Question {
  id: string; plugin: string; plugin_id: string; tool: string; arguments: Record<string, Json>; given: string;
  permissions: string[]; permission_texts: string[]; warning: string; asker: string; caller: string; callers: string[];
  lent: string[]; at: number; attachment: string; kind: string; agent: string; words: Word[]; risk: Risk[];
  texts: { title: string; now: string; could: string; once: string; attachment: string; always: string; no: string };
  until: number | null;
}

export interface Answered { id: string; word: Word | "withdrawn"; by: string; at: number; plugin: string; tool: string }

export type Series = Record<"calls" | "errors" | "refused" | "p50" | "p95", (number | null)[]>;

export interface Stats {
  since: number; until: number; bucket_s: number; calls: number; errors: number; refused: number; at: number[];
  series: Series;
  tools: {
    tool: string; plugin: string; calls: number; errors: number; refused: number; p50: number | null;
    p95: number | null; p99: number | null; longest: number | null; series: Series;
  }[];
  outcomes: Record<string, number>; is_cut: boolean;
}

export interface Panel { id: string; owner: string; title: string; lines: string[]; footer: string; is_open: boolean }
export interface Note { plugin: string; level: string; message: string }
export interface SlashCommand { name: string; plugin: string; plugin_id: string; description: string }
export interface CommandResult {
  command: string; plugin: string; action: string; prompt: string; insert: string; display: string;
  panel: Panel | null; error: Failure | null; notes: Note[];
}

export interface Install {
  id: string; state: "fetching" | "reading" | "installed" | "failed"; message: string; source: string;
  plugin: string | null; name: string; error: Failure | null; warnings: string[];
}

export interface Policies {
  is_on: boolean; is_valid: boolean; untrusted: string; harnesses: string[];
  places: { place: string; harness: string; policies: number; is_own: boolean }[];
  policies: {
    harness: string; place: string; file: string; package: string; title: string; events: string[]; tools: string[];
    signals: string[]; verbs: string[]; builtin: string;
  }[];
  problems: { file: string; row: number; level: string; message: string }[];
}

export interface Trial {
  harness: string; decision: string; reason: string;
  findings: { verb: string; rule_id: string; severity: string; reason: string; file: string; row: number }[];
  context: string[]; fired: string[]; failures: string[]; printed: string[];
  policies: { policy: string; file: string; asked: boolean; why: string }[]; notes: string[];
  in_force: null | { decision: string; reason: string };
}

export interface Replay {
  events: number; elsewhere: number; notes: string[];
  changes: {
    at: number; harness: string; cwd: string; tool: string; about: string; before: string; after: string; reason: string;
  }[];
}
