// Form generated from a JSON schema, without other knowledge of the service.

import { element } from "./dom.js";
import { messageWords, pathOf } from "./problem_words.js";
import { FIELD, FIELDS, partsOf, resolverOf, setAll, suggestionsOf, valuesOf } from "./schema_controls.js";
import { titled } from "./words.js";

/** Whether a control is always visible: required, fields, numbers, switches, and those without a default. */
function matters(schema, name, context) {
  const found = resolverOf(context.document)(schema.properties[name]);
  if (schema.required?.includes(name) || FIELDS.test(name) || FIELD.test(name)) return true;
  if (found.default === undefined || found.default === null) return true;
  return ["boolean", "integer", "number"].includes(found.type);
}

/** Creates the controls of a schema's properties; less important ones are collapsed. */
export function form(given, context, { without = [], allInTheOpen = false } = {}) {
  const schema = resolverOf(context.document)(given);
  const parts = partsOf(schema, context, without);
  const names = Object.keys(parts);
  const open = names.filter((name) => allInTheOpen || matters(schema, name, context));
  const folded = names.filter((name) => !open.includes(name));
  const more = element(
    "details",
    { class: "more" },
    element(
      "summary",
      {},
      `More, with defaults: ${folded.map((name) => titled(name, schema.properties[name]).toLowerCase()).join(", ")}`,
    ),
    folded.map((name) => parts[name].node),
  );
  const node = element(
    "div",
    { class: "form" },
    open.map((name) => parts[name].node),
    folded.length ? more : null,
  );
  return {
    node,
    parts,
    value: () => valuesOf(parts) ?? {},
    set: (values, before) => setAll(parts, values, before),
    suggestions: () => suggestionsOf(parts),
  };
}

/** Shows an error at its control, and expands the section that contains it. */
function mark(control, message) {
  control.fault(message);
  for (let outer = control.node.closest("details"); outer; outer = outer.parentElement.closest("details"))
    outer.open = true;
}

/** Marks a control with unreadable input until it is changed. */
export function pointToUnreadable({ control, message }) {
  mark(control, message);
  control.focus.focus();
  control.focus.addEventListener("input", () => control.fault(""), { once: true });
}

/** Shows each error at the control that its pointer names; returns the errors without a control. */
export function point(parts, errors) {
  const clear = (some) =>
    Object.values(some).forEach((part) => {
      part.fault?.("");
      clear(part.parts);
    });
  clear(parts);
  let first = null;
  const placeless = errors.filter((error) => {
    const path = pathOf(error);
    let at = null;
    for (let inside = parts; path.length && Object.hasOwn(inside ?? {}, path[0]); inside = at.parts)
      at = inside[path.shift()];
    if (!at?.fault) return true;
    mark(at, messageWords(error, parts));
    first ??= at;
    return false;
  });
  first?.focus.focus();
  return placeless;
}
