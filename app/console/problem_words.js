// Errors of a request in words: the labels of the controls that they concern, and what is wrong.

import { label } from "./words.js";

const QUOTED = /(\bfields? )?'([a-z][a-z0-9_]*)'/g;
const REQUIRED = "field required"; // of the JSON; here, fields are those of a table

/** Returns the names on the way to the value that an error concerns. */
export function pathOf({ pointer, parameter }) {
  if (parameter) return [parameter];
  const parts = (pointer ?? "").split("/").slice(1);
  return parts.map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Returns the labels on the way to the value; names that no control has stay as they are. */
function placeOf(error, parts) {
  let inside = parts;
  const words = pathOf(error).map((name, at, path) => {
    if (path[at - 1] === "vary") return label(name); // of a parameter
    if (path[0] === "source") return at ? "" : "The table";
    if (!inside) return /^\d+$/.test(name) ? `entry ${Number(name) + 1}` : `“${name}”`;
    const part = Object.hasOwn(inside, name) ? inside[name] : null;
    inside = part?.parts && Object.keys(part.parts).length ? part.parts : null;
    return part ? part.title : label(name);
  });
  return words.filter(Boolean).join(", ");
}

/** Returns name -> label of all controls. */
function titlesOf(parts, found = new Map()) {
  for (const [name, part] of Object.entries(parts)) {
    if (part.title) found.set(name, part.title);
    titlesOf(part.parts ?? {}, found);
  }
  return found;
}

/** Returns what is wrong, with labels in place of the names of controls. */
export function messageWords({ message }, parts = {}) {
  if (message === REQUIRED) return "a value is needed";
  const titles = titlesOf(parts);
  return message.replace(QUOTED, (whole, field, name) => (!field && titles.has(name) ? `“${titles.get(name)}”` : whole));
}

/** Returns an error of a request as a sentence. `parts` maps names to controls, as a form has them. */
export function sentenceOf(error, parts = {}) {
  const place = placeOf(error, parts);
  return `${place ? `${place}: ` : ""}${messageWords(error, parts)}`;
}

/** Returns a problem for `alarm`, in the words of a form. */
export function inForm(problem, parts) {
  const { title, message, others = [], errors = [] } = problem;
  if (!errors.length) return { title, message, others };
  const [first, ...more] = errors.map((error) => sentenceOf(error, parts));
  return { title, message: first, others: more };
}
