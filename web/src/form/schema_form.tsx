// A form made from a JSON Schema. It shows titles and descriptions as text only, and sets no style or markup from them.
import { useId, useRef, useState } from "preact/hooks";
import type { Json, Schema } from "../base/shapes";
import { type Fault, bestBranch } from "./schema_check";
import { ArrayField, MapField } from "./list_fields";
import { branchName, branches, firstValue, kindOf, names, properties, resolved } from "./schema_reading";

const LONG_TEXT = 120;
const LARGEST_FILE = 24 * 1024 * 1024; // bytes; what the host takes, in base64
const DEEPEST = 8; // then JSON is typed
const FIRST_FIELDS = 150; // of one object
const MOST_CHOICES = 2000; // of one value; others are typed as JSON

export interface FieldProps {
  schema: Schema; root: Schema; value: Json | undefined; change: (value: Json | undefined) => void; at: string;
  faults: Fault[]; label: string; isRequired: boolean; depth: number;
  isItem?: boolean | undefined; // of a list or map: its value is needed, but the person added it
}

export function SchemaForm({ schema, value, change, faults }: {
  schema: Schema; value: Record<string, Json>; change: (value: Record<string, Json>) => void; faults: Fault[];
}) {
  const one = resolved(schema, schema);
  if (kindOf(one) === "choice") {
    return <Field schema={one} root={schema} value={value} change={(next) => change((next ?? {}) as Record<string, Json>)} at="" faults={faults} label="Arguments" isRequired depth={0} />;
  }
  const fields = properties(one);
  if (!fields.length && one.additionalProperties !== undefined && one.additionalProperties !== false) {
    return <MapField schema={one} root={schema} value={value} change={(next) => change((next ?? {}) as Record<string, Json>)} at="" faults={faults} label="Arguments" isRequired depth={0} />;
  }
  if (!fields.length) return <p class="muted">This tool takes no arguments.</p>;
  return <Properties schema={one} root={schema} value={value} change={change} at="" faults={faults} depth={0} />;
}

export function Properties({ schema, root, value, change, at, faults, depth }: {
  schema: Schema; root: Schema; value: Record<string, Json>; change: (value: Record<string, Json>) => void; at: string;
  faults: Fault[]; depth: number;
}) {
  const [most, setMost] = useState(FIRST_FIELDS);
  const needed = names(schema.required);
  const fields = properties(schema);
  fields.sort((a, b) => Number(needed.includes(b[0])) - Number(needed.includes(a[0])));
  return (
    <>
      {fields.slice(0, most).map(([name, part]) => (
        <Field
          key={name} schema={part} root={root} value={value[name]} at={`${at}/${name}`} faults={faults} label={name}
          isRequired={needed.includes(name)} depth={depth + 1}
          change={(next) => {
            const { [name]: _old, ...rest } = value;
            change(next === undefined ? rest : { ...value, [name]: next });
          }}
        />
      ))}
      {fields.length > most ? <button type="button" class="small" onClick={() => setMost(most * 4)}>Show {fields.length - most} more fields</button> : null}
    </>
  );
}

export function Field(props: FieldProps) {
  const schema = resolved(props.schema, props.root);
  const kind = props.depth > DEEPEST ? "any" : kindOf(schema);
  const shown = { ...props, schema };
  switch (kind) {
    case "object": return properties(schema).length ? <ObjectField {...shown} /> : <MapField {...shown} />;
    case "array": return <ArrayField {...shown} />;
    case "choice": return <ChoiceField {...shown} />;
    case "boolean": return <BooleanField {...shown} />;
    case "file": return <FileField {...shown} />;
    case "any": return <JsonField {...shown} />;
    default: return <LineField {...shown} kind={kind} />;
  }
}

export function faultsAt(faults: Fault[], at: string): string[] {
  return faults.filter((fault) => fault.at === at).map((fault) => fault.says);
}

export function Name({ label, isRequired, isItem }: Pick<FieldProps, "label" | "isRequired" | "isItem">) {
  return <><span class="field-name quoted">{label}</span>{isRequired && !isItem ? <span class="muted"> required</span> : null}</>;
}

/** A label, a description and the faults around one control. */
export function Labelled({ id, label, isRequired, isItem, schema, faults, children }: {
  id: string; label: string; isRequired: boolean; isItem?: boolean | undefined; schema: Schema; faults: string[]; children: preact.ComponentChildren;
}) {
  return (
    <div class="field">
      <label for={id}><Name label={label} isRequired={isRequired} isItem={isItem} /></label>
      {typeof schema.description === "string" ? <p id={`${id}-about`} class="muted quoted lines small-text">{schema.description}</p> : null}
      {children}
      <Faults id={id} faults={faults} />
    </div>
  );
}

export function Faults({ id, faults }: { id: string; faults: string[] }) {
  return faults.length ? <p id={`${id}-fault`} class="risk small-text"><span aria-hidden="true">! </span>{faults.join("; ")}</p> : null;
}

export function describedBy(id: string, schema: Schema, faults: string[]): string | undefined {
  const ids = [typeof schema.description === "string" ? `${id}-about` : "", faults.length ? `${id}-fault` : ""];
  return ids.filter(Boolean).join(" ") || undefined;
}

function LineField({ schema, value, change, at, faults, label, isRequired, isItem, kind }: FieldProps & { kind: string }) {
  const id = useId();
  const said = faultsAt(faults, at);
  const shared = { id, "aria-invalid": said.length ? true : undefined, "aria-required": isRequired, "aria-describedby": describedBy(id, schema, said) } as const;
  const around = (control: preact.ComponentChildren) => (
    <Labelled id={id} label={label} isRequired={isRequired} isItem={isItem} schema={schema} faults={said}>{control}</Labelled>
  );
  if (kind === "enum" || kind === "const") {
    const choices = ((kind === "const" ? [schema.const] : schema.enum) as Json[]).slice(0, MOST_CHOICES);
    const chosen = choices.findIndex((choice) => JSON.stringify(choice) === JSON.stringify(value));
    return around(
      <select {...shared} value={String(chosen)} onChange={(event) => change(choices[Number(event.currentTarget.value)])}>
        <option value="-1">{isRequired ? "choose…" : "not set"}</option>
        {choices.map((choice, index) => <option key={index} value={String(index)}>{typeof choice === "string" ? choice : JSON.stringify(choice)}</option>)}
      </select>,
    );
  }
  if (kind === "null") return around(<input {...shared} value="null" readOnly />);
  if (kind === "number" || kind === "integer") {
    return around(
      <NumberInput
        {...shared} inputMode={kind === "integer" ? "numeric" : "decimal"} placeholder={example(schema)} value={value} change={change}
      />,
    );
  }
  const text = typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  const take = (typed: string) => change(typed === "" && !isRequired ? undefined : typed);
  if (schema.format === "date") return around(<input {...shared} type="date" value={text} onInput={(event) => take(event.currentTarget.value)} />);
  const isLong = Number(schema.maxLength ?? 0) > LONG_TEXT || text.includes("\n");
  return around(
    <textarea
      {...shared} class="text-field" rows={isLong ? 4 : 1} value={text} autocomplete="off" placeholder={example(schema)}
      onInput={(event) => take(event.currentTarget.value)}
    />,
  );
}

function example(schema: Schema): string {
  const first = Array.isArray(schema.examples) ? (schema.examples[0] as unknown) : undefined;
  return first === undefined ? "" : `for example ${typeof first === "string" ? first : JSON.stringify(first)}`;
}

/** A number as it is typed: text that is none yet stays as it is, so that the check can say so. */
function NumberInput({ value, change, ...rest }: {
  value: Json | undefined; change: (value: Json | undefined) => void; [attribute: string]: unknown;
}) {
  const [typed, setTyped] = useState(value === undefined ? "" : String(value));
  const shown = typed.trim() !== "" && Number(typed) === value ? typed : value === undefined ? "" : String(value);
  return (
    <input
      {...rest} autocomplete="off" value={shown}
      onInput={(event) => {
        const text = event.currentTarget.value;
        setTyped(text);
        const number = Number(text);
        change(text.trim() === "" ? undefined : Number.isFinite(number) ? number : text);
      }}
    />
  );
}

function BooleanField({ schema, value, change, at, faults, label, isRequired }: FieldProps) {
  const id = useId();
  const said = faultsAt(faults, at);
  return (
    <div class="field">
      <div class="check">
        <input
          id={id} type="checkbox" checked={value === true} aria-describedby={describedBy(id, schema, said)}
          onChange={(event) => change(event.currentTarget.checked || isRequired || schema.default !== undefined ? event.currentTarget.checked : undefined)}
        />
        <label for={id}><Name label={label} isRequired={false} /></label>
      </div>
      {typeof schema.description === "string" ? <p id={`${id}-about`} class="muted quoted lines small-text">{schema.description}</p> : null}
      <Faults id={id} faults={said} />
    </div>
  );
}

function ObjectField(props: FieldProps) {
  const { schema, root, value, change, at, faults, label, isRequired, depth } = props;
  const id = useId();
  const isThere = typeof value === "object" && value !== null && !Array.isArray(value);
  return (
    <fieldset class="field">
      <legend><Name {...props} /></legend>
      {typeof schema.description === "string" ? <p class="muted quoted lines small-text">{schema.description}</p> : null}
      {isThere ? (
        <>
          <Properties schema={schema} root={root} value={value} change={change} at={at} faults={faults} depth={depth} />
          {isRequired ? null : <button type="button" class="small" onClick={() => change(undefined)}>Leave {label} out</button>}
        </>
      ) : (
        <button type="button" class="small" onClick={() => change(firstValue(schema, root, true) ?? {})}>Add {label}</button>
      )}
      <Faults id={id} faults={faultsAt(faults, at)} />
    </fieldset>
  );
}

function ChoiceField(props: FieldProps) {
  const { schema, root, value, change, at, isRequired, depth } = props;
  const id = useId();
  const list = branches(schema, root);
  const [picked, pick] = useState<number | null>(null);
  const at0 = value === undefined && !isRequired && picked === null ? -1 : (picked ?? bestBranch(schema, root, value));
  const branch = list[at0];
  const said = branch ? [] : faultsAt(props.faults, at);
  return (
    <fieldset class="field">
      <legend><Name {...props} /></legend>
      {typeof schema.description === "string" ? <p class="muted quoted lines small-text">{schema.description}</p> : null}
      <label for={id} class="small-text muted">Which kind</label>
      <select id={id} value={String(at0)} onChange={(event) => {
        const index = Number(event.currentTarget.value);
        pick(index < 0 ? null : index);
        change(index < 0 ? undefined : firstValue(list[index], root, true));
      }}>
        {isRequired ? null : <option value="-1">not set</option>}
        {list.map((one, index) => <option key={index} value={String(index)}>{branchName(one, index)}</option>)}
      </select>
      {branch ? (
        kindOf(branch) === "object" && properties(branch).length ? (
          <Properties
            schema={branch} root={root} at={at} faults={props.faults} depth={depth} change={change}
            value={typeof value === "object" && value !== null && !Array.isArray(value) ? value : {}}
          />
        ) : kindOf(branch) === "null" ? null : (
          <Field {...props} schema={{ ...branch, description: undefined }} label={branchName(branch, at0)} isRequired={isRequired} depth={depth + 1} />
        )
      ) : null}
      <Faults id={id} faults={said} />
    </fieldset>
  );
}

function FileField({ schema, value, change, at, faults, label, isRequired, isItem }: FieldProps) {
  const id = useId();
  const [fault, setFault] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const said = [...faultsAt(faults, at), ...(fault ? [fault] : [])];
  const name = typeof value === "object" && value !== null && !Array.isArray(value) ? String(value.filename ?? "") : "";
  const take = async (file: File | undefined) => {
    setFault("");
    if (!file) return change(undefined);
    if (file.size > LARGEST_FILE) return setFault("is larger than 24 MiB");
    change({ filename: file.name, data: await base64(file) });
  };
  return (
    <Labelled id={id} label={label} isRequired={isRequired} isItem={isItem} schema={schema} faults={said}>
      <input ref={field} id={id} type="file" aria-describedby={describedBy(id, schema, said)} onChange={(event) => void take(event.currentTarget.files?.[0])} />
      {name ? <p class="row small-text"><span>{name}</span><button type="button" class="small" onClick={() => { field.current!.value = ""; change(undefined); }}>Remove</button></p> : null}
    </Labelled>
  );
}

function base64(file: File): Promise<string> {
  return new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => fail(reader.error ?? new Error("the file cannot be read"));
    reader.readAsDataURL(file);
  });
}

export function JsonField({ schema, value, change, at, faults, label, isRequired, isItem }: FieldProps) {
  const id = useId();
  const [typed, setTyped] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  const [fault, setFault] = useState("");
  const said = [...faultsAt(faults, at), ...(fault ? [fault] : [])];
  const take = (text: string) => {
    setTyped(text);
    setFault("");
    if (!text.trim()) return change(undefined);
    try {
      change(JSON.parse(text) as Json);
    } catch {
      change(text);
      setFault("is sent as text, because it is not JSON");
    }
  };
  return (
    <Labelled id={id} label={label} isRequired={isRequired} isItem={isItem} schema={schema} faults={said}>
      <textarea id={id} class="code text-field" rows={1} spellcheck={false} value={typed} placeholder="any JSON" aria-describedby={describedBy(id, schema, said)} onInput={(event) => take(event.currentTarget.value)} />
    </Labelled>
  );
}
