// Controls for JSON schemas, including nested ones.

import {
  anyValue, choice, group, lines, numeral, oneField, oneFigure, someFields, someFigures, text, yesOrNo,
} from "./inputs.js";
import { figures, kindWords, label, measures, titled } from "./words.js";
import { isNumber, stringify } from "./exact_json.js";
import { element, humanised, newId } from "./dom.js";

export const FIELD = /(^|_)field$/;
export const FIELDS = /(^|_)fields$/;
const OF_FIELDS = /field\b[^.]*->/i;

/** Property that names a figure -> the kinds that it takes. */
const FIGURE_OF = { risk: ["risk"], utility: ["utility", "use"] };

/** Control of a property that names measures or figures; null for another property. */
function figuresOf(name, schema, required) {
  if (name === "only" && schema.items?.type === "string" && measures().length)
    return someFigures(name, schema, required, measures().map((each) => ({ ...each, name: each.key, words: each.title })));
  if (name === "rank_by" && figures("risk", "utility").length)
    return someFigures(name, schema, required, figures("risk", "utility"));
  if (schema.type === "string" && !schema.enum && Object.hasOwn(FIGURE_OF, name) && figures("risk").length)
    return oneFigure(name, schema, required, figures(...FIGURE_OF[name]));
  return null;
}

/** Returns a function that resolves `$ref`s in a document. */
export const resolverOf = (document) => (schema) => {
  if (!schema.$ref) return schema;
  const { $ref, ...own } = schema;
  const found = $ref
    .split("/")
    .slice(1)
    .reduce((inside, part) => inside[part], document);
  return { ...found, ...own };
};

/**
 * Creates the control of a schema. `context` has `document` (target of `$ref`s), the table's `fields`, and
 * optionally `suggest(name, schema, path)`; `path` lists the names of the enclosing models.
 */
export function control(name, given, required, context) {
  const schema = resolverOf(context.document)(given);
  const made = kindOf(name, schema, required, context);
  const start = context.suggest?.(name, schema, context.path ?? []);
  if (start === undefined) return made;
  made.set(start);
  return { ...made, suggested: start };
}

function kindOf(name, schema, required, context) {
  const resolve = resolverOf(context.document);
  const options = (schema.anyOf ?? schema.oneOf ?? []).map(resolve);
  const ofFigures = figuresOf(name, schema, required);
  if (ofFigures) return ofFigures;
  const ofTexts = options.length === 2 && options[0].type === "string" && options[1].items?.type === "string";
  if (FIELD.test(name) && ofTexts) return someFields(name, schema, required, context.fields, true);
  if (schema.writeOnly) return text(name, schema, required);
  if (options.length) return union(name, schema, required, options, context);
  if (schema.enum) return choice(name, schema, required);
  if (schema.const !== undefined) return constant(schema.const);
  if (schema.type === "boolean") return yesOrNo(name, schema);
  if (schema.type === "integer" || schema.type === "number") return numeral(name, schema, required);
  if (schema.type === "string") {
    const isField = FIELD.test(name) || /^The field\b/.test(schema.description ?? "");
    return isField ? oneField(name, schema, required, context.fields) : text(name, schema, required);
  }
  if (schema.type === "array") return list(name, schema, required, resolve(schema.items ?? {}), context);
  if (schema.properties) return record(name, schema, required, context);
  if (schema.additionalProperties)
    return map(name, schema, required, resolve(schema.additionalProperties), context);
  return anyValue(name, schema, required);
}

const constant = (value) => ({
  node: element("span"),
  parts: {},
  fault: () => {},
  value: () => value,
  set: () => {},
});

function list(name, schema, required, items, context) {
  if ((FIELDS.test(name) || /^Fields\b/.test(schema.description ?? "")) && items.type === "string")
    return someFields(name, schema, required, context.fields, false);
  const plain = (each) => ["string", "number", "integer", "boolean"].includes(each.type);
  if (!Object.keys(items).length || plain(items) || items.anyOf?.every(plain))
    return lines(name, schema, required, items);
  return repeated(name, schema, required, `Add to ${humanised(name).toLowerCase()}`, {
    make: () => control("entry", items, true, context),
    read: (item) => item.value(),
    write: (item, value) => item.set(value),
    collect: (values) => values,
    entries: (values) => values ?? [],
  });
}

/** Control of a map: names (fields if the schema says so), and a value for each. */
function map(name, schema, required, values, context) {
  const ofFields = OF_FIELDS.test(schema.description ?? "");
  const keySchema = { type: "string" };
  const keys = context.keys?.[name];
  const inner = { ...context, suggest: undefined };
  const adding = keys ? "Add a parameter" : `Add to ${humanised(name).toLowerCase()}`;
  return repeated(name, schema, required, adding, {
    make: () => {
      const key = keys
        ? choice("parameter", { enum: keys, many: true, words: label }, true)
        : ofFields
          ? oneField("field", keySchema, true, context.fields)
          : text("name", keySchema, true);
      const value = control(values.type === "array" ? "values" : "value", values, true, inner);
      return { node: element("div", { class: "pair" }, key.node, value.node), key, value };
    },
    read: (row) => (row.key.value() ? [row.key.value(), row.value.value()] : undefined),
    write: (row, [key, value]) => {
      row.key.set(key);
      row.value.set(value);
    },
    collect: (pairs) => Object.fromEntries(pairs),
    entries: (values) => Object.entries(values ?? {}),
  });
}

/** List of entries to add and remove: `make`, `read` and `write` handle one row, `collect` all of them. */
function repeated(name, schema, required, adding, { make, read, write, collect, entries }) {
  let rows = [];
  const holder = element("div", { class: "entries" });
  const adder = element(
    "button",
    { type: "button", onclick: () => add().node.querySelector("input, select, textarea").focus() },
    adding,
  );
  const add = () => {
    const row = make();
    const remover = element(
      "button",
      {
        type: "button",
        onclick: () => {
          rows = rows.filter(([other]) => other !== row);
          whole.remove();
          adder.focus();
        },
      },
      "Remove",
    );
    const whole = element("div", { class: "entry" }, row.node, remover);
    rows.push([row, whole]);
    holder.append(whole);
    return row;
  };
  const control = group(name, schema, required, [holder, adder]);
  return {
    ...control,
    focus: adder,
    value: () => {
      const given = rows.map(([row]) => read(row)).filter((each) => each !== undefined);
      return given.length ? collect(given) : undefined;
    },
    set: (value) => {
      rows.forEach(([, whole]) => whole.remove());
      rows = [];
      entries(value).forEach((each) => write(add(), each));
    },
  };
}

/** Control of a union: selects the kind of value, then edits the value. */
function union(name, schema, required, options, context) {
  const resolve = resolverOf(context.document);
  const kinds = options.flatMap((option) => (option.anyOf ?? option.oneOf ?? [option]).map(resolve));
  const inside = { ...context, suggest: undefined };
  const made = kinds.map((kind) =>
    control(
      inner(kind),
      { ...kind, examples: kind.examples ?? fitting(schema.examples, kind) },
      true,
      inside,
    ),
  );
  const free = !required;
  const picker = element(
    "select",
    { id: newId("kind"), "aria-label": `${titled(name, schema)}: kind`, onchange: () => show() },
    free
      ? element(
          "option",
          { value: "" },
          schema.default === undefined || schema.default === null
            ? "not given"
            : `default: ${plainly(schema.default)}`,
        )
      : null,
    kinds.map((kind, at) => element("option", { value: String(at) }, kindName(kind))),
  );
  const holder = element("div", { class: "kind" });
  const picked = () => (picker.value === "" ? null : made[Number(picker.value)]);
  const show = () => holder.replaceChildren(...(picked() ? [picked().node] : []));
  const whole = group(name, schema, required, [picker, holder]);
  show();
  return {
    ...whole,
    focus: picker,
    value: () => picked()?.value(),
    set: (value) => {
      const at =
        value === undefined || value === null || stringify(value) === stringify(schema.default)
          ? -1
          : kinds.findIndex((kind) => fits(kind, value));
      picker.value = at < 0 && free ? "" : String(Math.max(at, 0));
      if (at >= 0) made[at].set(value);
      show();
    },
  };
}

const inner = (kind) => (kind.type === "array" ? "values" : kind.title ? kindWords(kind.title) : "value");

const plainly = (value) =>
  [value]
    .flat()
    .map((each) => (typeof each === "object" ? Object.values(each)[0] : each))
    .join(", ");

const fitting = (examples, kind) => examples?.filter((example) => fits(kind, example));

function kindName(kind) {
  if (kind.const !== undefined) return String(kind.const);
  if (kind.type === "array") return "a list";
  if (kind.type === "boolean") return "yes or no";
  if (kind.type === "object") return kindWords(kind.title);
  return kind.type === "string" ? "a text" : "a number";
}

function fits(kind, value) {
  if (kind.const !== undefined) return value === kind.const;
  if (kind.type === "array") return Array.isArray(value);
  if (kind.type === "object")
    return (
      typeof value === "object" &&
      !Array.isArray(value) &&
      (kind.required ?? []).every((name) => name in value)
    );
  if (kind.type === "integer") return Number.isInteger(value) || typeof value === "bigint";
  return kind.type === "string" ? typeof value === "string" : isNumber(value);
}

/** Control of a nested model. */
function record(name, schema, required, context) {
  const parts = partsOf(schema, { ...context, path: [...(context.path ?? []), name] });
  const whole = group(
    name,
    schema,
    required,
    Object.values(parts).map((part) => part.node),
    "control record",
  );
  return { ...whole, parts, value: () => valuesOf(parts), set: (value) => setAll(parts, value) };
}

/** Returns name -> control of the properties; required ones and those that name fields come first. */
export function partsOf(schema, context, without = []) {
  const needed = schema.required ?? [];
  const names = Object.keys(schema.properties).filter((each) => !without.includes(each));
  const first = (each) => needed.includes(each) || FIELDS.test(each) || FIELD.test(each);
  names.sort((one, other) => first(other) - first(one));
  return Object.fromEntries(
    names.map((each) => [each, control(each, schema.properties[each], needed.includes(each), context)]),
  );
}

/** Returns the given values by name; undefined if there are none. */
export function valuesOf(parts) {
  const given = Object.entries(parts)
    .map(([name, part]) => [name, part.value()])
    .filter(([, value]) => value !== undefined);
  return given.length ? Object.fromEntries(given) : undefined;
}

const isEqual = (one, other) => stringify([one ?? []].flat()) === stringify([other ?? []].flat());

/**
 * Sets the controls to the values; null leaves a control empty. A suggestion that the values lack is taken back.
 * `before`, if given, are the suggestions that the values were entered over: what equals them follows the present ones.
 */
export function setAll(parts, values, before) {
  for (const [name, part] of Object.entries(parts)) {
    const value = values?.[name] ?? undefined;
    if (Object.keys(part.parts).length) setAll(part.parts, value, before && (before[name] ?? {}));
    else if (before && isEqual(value, before[name])) continue;
    else if (value !== undefined) part.set(value);
    else if (part.suggested !== undefined) part.set(undefined);
  }
}

/** Returns the suggestions by name, as `valuesOf` returns values. */
export function suggestionsOf(parts) {
  const found = Object.entries(parts)
    .map(([name, part]) => [name, Object.keys(part.parts).length ? suggestionsOf(part.parts) : part.suggested])
    .filter(([, value]) => value !== undefined);
  return Object.fromEntries(found);
}
