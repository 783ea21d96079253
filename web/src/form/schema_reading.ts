// Read JSON Schemas that strangers wrote: resolve local references, choose branches, make first values. Bounded, never
// raises; what it does not understand becomes "anything".
import type { Json, Schema } from "../base/shapes";

const DEEPEST = 12;
const MOST_PARTS = 2000; // read of one schema at once: references to itself make it endless
const MOST_FIRST = 300; // parts of a first value
export const FILE = "file"; // what a value with a file name and base64 data is called

export type Kind =
  | "string" | "number" | "integer" | "boolean" | "null" | "object" | "array" | "choice" | "enum" | "const" | "file" | "any";

const isSchema = (value: unknown): value is Schema => typeof value === "object" && value !== null && !Array.isArray(value);

function pointed(root: Schema, reference: string): Schema | undefined {
  if (!reference.startsWith("#")) return undefined;
  let at: unknown = root;
  for (const part of reference.slice(1).split("/").filter(Boolean)) {
    if (typeof at !== "object" || at === null) return undefined;
    let name = part;
    try { name = decodeURIComponent(part); } catch { /* as it is */ }
    at = (at as Record<string, unknown>)[name.replaceAll("~1", "/").replaceAll("~0", "~")];
  }
  return isSchema(at) ? at : undefined;
}

/** Follow `$ref` and merge `allOf`, so that the keywords of a value are in one object. */
export function resolved(schema: unknown, root: Schema): Schema {
  return merged(schema, root, 0, { left: MOST_PARTS });
}

function merged(schema: unknown, root: Schema, depth: number, budget: { left: number }): Schema {
  if (!isSchema(schema) || depth > DEEPEST || budget.left-- <= 0) return {};
  let one = schema;
  if (typeof one.$ref === "string") {
    const { $ref, ...beside } = one;
    one = { ...merged(pointed(root, $ref as string), root, depth + 1, budget), ...beside };
  }
  if (Array.isArray(one.allOf)) {
    const { allOf, ...rest } = one;
    let whole: Schema = {};
    for (const part of [...allOf.map((item) => merged(item, root, depth + 1, budget)), rest]) {
      whole = {
        ...whole, ...part,
        properties: { ...(whole.properties as object), ...(part.properties as object) },
        required: [...new Set([...names(whole.required), ...names(part.required)])],
      };
    }
    if (!Object.keys(whole.properties as object).length) delete whole.properties;
    one = whole;
  }
  return one;
}

export const names = (value: unknown): string[] => (Array.isArray(value) ? value.filter((item) => typeof item === "string") : []);

export function properties(schema: Schema): [string, Schema][] {
  return isSchema(schema.properties) ? Object.entries(schema.properties).map(([name, part]) => [name, isSchema(part) ? part : {}]) : [];
}

/** The alternatives of a value, or none; `type: ["string", "null"]` has two as well. */
export function branches(schema: Schema, root: Schema): Schema[] {
  const listed = Array.isArray(schema.oneOf) ? schema.oneOf : Array.isArray(schema.anyOf) ? schema.anyOf : null;
  if (listed) {
    const { oneOf: _one, anyOf: _any, ...beside } = schema;
    delete beside.default;
    delete beside.title;
    delete beside.description;
    return listed.map((part) => resolved({ allOf: [beside, part] }, root));
  }
  if (!Array.isArray(schema.type)) return [];
  const isFile = isFileContent(schema);
  const { properties: _properties, required: _required, ...plain } = schema;
  const kinds = isFile ? [...schema.type].sort((a) => (a === "object" ? -1 : 1)) : schema.type; // choosing a file comes first
  return kinds.map((type) => ({
    ...(type === "object" ? schema : plain), type, description: undefined,
    ...(isFile ? { title: type === "object" ? "a file to send" : type === "string" ? "the path of a file" : undefined } : {}),
  }));
}

/** Whether a value has a file's name and its content in base64. */
function isFileContent(schema: Schema): boolean {
  return isSchema(schema.properties) && Object.keys(schema.properties).sort().join() === "data,filename";
}

export function kindOf(schema: Schema): Kind {
  if ("const" in schema) return "const";
  if (Array.isArray(schema.enum)) return "enum";
  if (Array.isArray(schema.oneOf) || Array.isArray(schema.anyOf) || Array.isArray(schema.type)) return "choice";
  if (schema.type === FILE || schema.format === FILE) return "file";
  if (isFileContent(schema)) return "file";
  if (isSchema(schema.properties)) return "object";
  const type = schema.type;
  if (type === "string" || type === "number" || type === "integer" || type === "boolean" || type === "null") return type;
  if (type === "object") return "object";
  if (type === "array") return "array";
  return "any";
}

/** A short name of an alternative. */
export function branchName(schema: Schema, index: number): string {
  if (typeof schema.title === "string" && schema.title) return schema.title;
  for (const [name, part] of properties(schema)) if ("const" in part) return `${name}: ${String(part.const)}`;
  if ("const" in schema) return String(schema.const);
  const kind = kindOf(schema);
  if (kind === "null") return "nothing (null)";
  if (kind === "object") {
    const keys = properties(schema).map(([name]) => name).slice(0, 3).join(", ");
    return keys ? `object with ${keys}` : "object";
  }
  return kind === "any" ? `alternative ${index + 1}` : kind;
}

/** What a field shows before anything is typed; undefined: the value is left out. */
export function firstValue(schema: unknown, root: Schema, isRequired: boolean, depth = 0, budget = { left: MOST_FIRST }): Json | undefined {
  if (depth > DEEPEST || budget.left-- <= 0) return undefined;
  const one = resolved(schema, root);
  if (one.default !== undefined) return structuredClone(one.default) as Json;
  const kind = kindOf(one);
  if (kind === "const") return isRequired ? (one.const as Json) : undefined;
  if (!isRequired) return undefined;
  if (kind === "object") {
    const made: Record<string, Json> = {};
    const needed = names(one.required);
    for (const [name, part] of properties(one)) {
      const value = firstValue(part, root, needed.includes(name), depth + 1, budget);
      if (value !== undefined) made[name] = value;
    }
    return made;
  }
  if (kind === "array") return [];
  if (kind === "choice") return firstValue(branches(one, root)[0], root, true, depth + 1, budget);
  if (kind === "boolean") return false;
  if (kind === "null") return null;
  return undefined;
}

export function startValue(schema: Schema): Record<string, Json> {
  const value = firstValue({ ...resolved(schema, schema), type: "object" }, schema, true);
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}
