// Check values before they are sent, in words for people. `pattern` is left to the host, which bounds its time: a
// stranger's expression could stop the page.
import type { Json, Schema } from "../base/shapes";
import { branches, kindOf, names, properties, resolved } from "./schema_reading";

export interface Fault { at: string; says: string } // `at` is a path like /tags/0

const DEEPEST = 24;
const MOST = 50;
const MOST_STEPS = 50_000; // alternatives within alternatives have no end; the host checks everything

let left = 0;

const isObject = (value: unknown): value is Record<string, Json> => typeof value === "object" && value !== null && !Array.isArray(value);
const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);
const number = (value: unknown): number | undefined => (typeof value === "number" ? value : undefined);

function typeFits(type: unknown, value: Json): boolean {
  switch (type) {
    case "string": return typeof value === "string";
    case "number": return typeof value === "number";
    case "integer": return typeof value === "number" && Number.isInteger(value);
    case "boolean": return typeof value === "boolean";
    case "null": return value === null;
    case "object": return isObject(value);
    case "array": return Array.isArray(value);
    default: return true;
  }
}

const AN: Record<string, string> = {
  string: "a text", number: "a number", integer: "a whole number", boolean: "yes or no", null: "nothing",
  object: "an object", array: "a list",
};

/** The alternative that a value fits best. */
export function bestBranch(schema: Schema, root: Schema, value: Json | undefined): number {
  left = MOST_STEPS;
  return bestOf(schema, root, value, 0);
}

function bestOf(schema: Schema, root: Schema, value: Json | undefined, depth: number): number {
  const list = branches(schema, root);
  if (value === undefined) return 0;
  let best = 0;
  let fewest = Infinity;
  list.forEach((branch, index) => {
    const wrongConst = isObject(value) && properties(branch).some(([name, part]) => "const" in part && !same(part.const, value[name]));
    const faults = faultsOf(branch, value, root, "", depth + 1).length + (wrongConst ? 100 : 0) + (typeFits(branch.type, value) ? 0 : 50);
    if (faults < fewest) { fewest = faults; best = index; }
  });
  return best;
}

/** Return what is wrong with a value; of an endless schema only what a bounded search finds. */
export function check(schema: unknown, value: Json | undefined, root: Schema): Fault[] {
  left = MOST_STEPS;
  return faultsOf(schema, value, root, "", 0);
}

function faultsOf(schema: unknown, value: Json | undefined, root: Schema, at: string, depth: number): Fault[] {
  if (left-- <= 0) return [];
  if (schema === false) return [{ at, says: "is not allowed" }];
  const one = resolved(schema, root);
  if (value === undefined || depth > DEEPEST) return [];
  const kind = kindOf(one);
  if (kind === "const") return same(one.const, value) ? [] : [{ at, says: `must be ${JSON.stringify(one.const)}` }];
  if (kind === "enum") return (one.enum as unknown[]).some((item) => same(item, value)) ? [] : [{ at, says: "is not one of the choices" }];
  if (kind === "choice") return checkChoice(one, value, root, at, depth);
  if (typeof one.type === "string" && !typeFits(one.type, value)) return [{ at, says: `must be ${AN[one.type] ?? one.type}` }];
  const faults: Fault[] = [];
  const say = (says: string) => faults.push({ at, says });
  if (typeof value === "string") {
    const length = [...value].length;
    if (length < (number(one.minLength) ?? 0)) say(one.minLength === 1 ? "must not be empty" : `needs at least ${one.minLength} characters`);
    if (length > (number(one.maxLength) ?? Infinity)) say(`has more than ${one.maxLength} characters`);
  } else if (typeof value === "number") {
    const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = one;
    if (value < (number(minimum) ?? -Infinity)) say(`must be at least ${minimum}`);
    if (value > (number(maximum) ?? Infinity)) say(`must be at most ${maximum}`);
    if (value <= (number(exclusiveMinimum) ?? -Infinity)) say(`must be more than ${exclusiveMinimum}`);
    if (value >= (number(exclusiveMaximum) ?? Infinity)) say(`must be less than ${exclusiveMaximum}`);
    const step = number(multipleOf);
    if (step && Math.abs(value / step - Math.round(value / step)) > 1e-9) say(`must be a multiple of ${step}`);
  } else if (Array.isArray(value)) {
    faults.push(...checkList(one, value, root, at, depth));
  } else if (isObject(value)) {
    faults.push(...checkObject(one, value, root, at, depth));
  }
  return faults.slice(0, MOST);
}

function checkChoice(one: Schema, value: Json, root: Schema, at: string, depth: number): Fault[] {
  const list = branches(one, root);
  if (!list.length) return [];
  const best = list[bestOf(one, root, value, depth)]!;
  return faultsOf(best, value, root, at, depth + 1);
}

function checkList(one: Schema, value: Json[], root: Schema, at: string, depth: number): Fault[] {
  const faults: Fault[] = [];
  if (value.length < (number(one.minItems) ?? 0)) faults.push({ at, says: `needs at least ${one.minItems}` });
  if (value.length > (number(one.maxItems) ?? Infinity)) faults.push({ at, says: `takes at most ${one.maxItems}` });
  if (one.uniqueItems === true && new Set(value.map((item) => JSON.stringify(item))).size < value.length) {
    faults.push({ at, says: "has an item twice" });
  }
  const fixed = Array.isArray(one.prefixItems) ? one.prefixItems : [];
  value.slice(0, 1000).forEach((item, index) => {
    const part: unknown = fixed[index] ?? one.items;
    if (part !== undefined) faults.push(...faultsOf(part, item, root, `${at}/${index}`, depth + 1));
  });
  return faults;
}

function checkObject(one: Schema, value: Record<string, Json>, root: Schema, at: string, depth: number): Fault[] {
  const faults: Fault[] = [];
  for (const name of names(one.required)) if (value[name] === undefined) faults.push({ at: `${at}/${name}`, says: "is required" });
  const known = new Map(properties(one));
  for (const [name, item] of Object.entries(value)) {
    const part = known.get(name) ?? one.additionalProperties;
    if (part === false && !one.patternProperties) faults.push({ at: `${at}/${name}`, says: "is not a known name" });
    else if (part !== undefined && part !== true && part !== false) faults.push(...faultsOf(part, item, root, `${at}/${name}`, depth + 1));
  }
  return faults;
}
