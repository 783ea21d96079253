// The fields of a form that have any number of values: lists, and objects with names of one's own.
import { useId, useState } from "preact/hooks";
import type { Json, Schema } from "../base/shapes";
import { Faults, Field, type FieldProps, JsonField, Name, faultsAt } from "./schema_form";
import { firstValue, kindOf, resolved } from "./schema_reading";

const MOST_BOXES = 12; // choices shown as boxes to tick

export function ArrayField(props: FieldProps) {
  const { schema, root, value, change, at, faults, label, isRequired, depth } = props;
  const id = useId();
  const items = Array.isArray(value) ? value : [];
  const fixed = Array.isArray(schema.prefixItems) ? (schema.prefixItems as Schema[]) : [];
  const item = resolved(schema.items, root);
  const itemKind = kindOf(item);
  if (itemKind === "any" && !fixed.length && depth > 4) return <JsonField {...props} />;
  const set = (next: Json[]) => change(next.length || isRequired ? next : undefined);
  const choices = itemKind === "enum" && schema.uniqueItems === true ? (item.enum as Json[]) : [];
  return (
    <fieldset class="field">
      <legend><Name {...props} /></legend>
      {typeof schema.description === "string" ? <p class="muted quoted lines small-text">{schema.description}</p> : null}
      {choices.length && choices.length <= MOST_BOXES ? (
        choices.map((choice, index) => (
          <div class="check" key={index}>
            <input
              id={`${id}-${index}`} type="checkbox" checked={items.includes(choice)}
              onChange={(event) => set(event.currentTarget.checked ? [...items, choice] : items.filter((one) => one !== choice))}
            />
            <label for={`${id}-${index}`}>{String(choice)}</label>
          </div>
        ))
      ) : (
        <>
          {items.map((one, index) => (
            <div class="item" key={index}>
              <Field
                schema={fixed[index] ?? item} root={root} value={one} at={`${at}/${index}`} faults={faults} depth={depth + 1}
                label={`${label} ${index + 1}`} isRequired isItem change={(next) => set(items.map((old, place) => (place === index ? (next ?? "") : old)))}
              />
              <button type="button" class="small" aria-label={`Remove ${label} ${index + 1}`} onClick={() => set(items.filter((_, place) => place !== index))}>Remove</button>
            </div>
          ))}
          <button type="button" class="small" onClick={() => change([...items, firstValue(fixed[items.length] ?? item, root, true) ?? ""])}>
            Add to {label}
          </button>
        </>
      )}
      <Faults id={id} faults={faultsAt(faults, at)} />
    </fieldset>
  );
}

export function MapField(props: FieldProps) {
  const { schema, root, value, change, at, faults, label, isRequired, depth } = props;
  const id = useId();
  const [name, setName] = useState("");
  const entries = typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
  const part = typeof schema.additionalProperties === "object" ? (schema.additionalProperties as Schema) : {};
  const set = (next: Record<string, Json>) => change(Object.keys(next).length || isRequired ? next : undefined);
  const add = () => {
    if (name && !(name in entries)) set({ ...entries, [name]: firstValue(part, root, true) ?? "" });
    setName("");
  };
  return (
    <fieldset class="field">
      <legend><Name {...props} /></legend>
      {typeof schema.description === "string" ? <p class="muted quoted lines small-text">{schema.description}</p> : null}
      {Object.entries(entries).map(([key, one]) => (
        <div class="item" key={key}>
          <Field
            schema={part} root={root} value={one} at={`${at}/${key}`} faults={faults} depth={depth + 1} label={key} isRequired isItem
            change={(next) => set({ ...entries, [key]: next ?? "" })}
          />
          <button type="button" class="small" aria-label={`Remove ${key}`} onClick={() => { const { [key]: _gone, ...rest } = entries; set(rest); }}>Remove</button>
        </div>
      ))}
      <div class="row nowrap">
        <input id={id} aria-label={`Name to add to ${label}`} placeholder="name" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        <button type="button" class="small" disabled={!name} onClick={add}>Add</button>
      </div>
      <Faults id={id} faults={faultsAt(faults, at)} />
    </fieldset>
  );
}
