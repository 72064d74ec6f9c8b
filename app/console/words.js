// Words for people: labels of parameters, names of measures and figures, and terms of the glossary.
//
// Texts of the API name parameters and values by their keys, in backticks; here these become their labels.

const LABELS = {
  at_most: "At most",
  attacks: "Attacks",
  bins: "Bins",
  block_size: "Block size",
  carry_along: "Fields carried along",
  csv_decimal_mark: "Decimal mark of the CSV",
  csv_delimiter: "Delimiter of the CSV",
  csv_formulas: "Formulas in CSV",
  decimal_mark: "Decimal mark",
  deadline_seconds: "Deadline in seconds",
  fields: "Fields",
  k: "Group size (k)",
  k_anonymity: "Least group size (k-anonymity)",
  key_fields: "Key fields",
  known: "Known",
  locked: "Locked",
  matters: "Axis that matters more",
  min_group_size: "Smallest group size",
  null_tokens: "Null tokens",
  on_reversible: "Groups that can be undone",
  only: "Measures to take",
  q: "Share of values replaced (q)",
  rate: "Rate",
  rank_by: "Figures that rank",
  runs: "Runs",
  retain_source: "Keep the source for reruns",
  sensitive_fields: "Sensitive fields",
  target: "Field to predict",
  target_epsilon: "Largest epsilon",
  validate_only: "Check only",
  vary: "Vary",
};

const KINDS = {
  CandidateOptions: "a number and how to rank",
  RunAttackOptions: "with these options",
  Breaks: "intervals",
  Quantiles: "classes of equal size",
  Grouping: "groups of values",
  Prefix: "first characters",
};

const SPOKEN = {
  "POST /v1/attacks": "an attack",
  "POST /v1/frontier": "a comparison",
  "GET /v1/jobs/{id}/rows": "the rows of the job",
  "GET /v1/ledger": "the disclosure ledger",
  deadline_exceeded: "deadline exceeded",
  "measures.key_fields": "“Key fields”",
};

/** Terms of the glossary that the console explains; everyday words such as “group” need no explanation. */
const EXPLAINED = [
  "baseline", "candidate", "candidate row", "classifier", "control field", "control rows", "disclosure threshold", "donor",
  "effective k", "epsilon of a swap", "equivalence class", "frontier", "hit-and-run", "identifier", "k-anonymity",
  "known field", "l-diversity", "label field", "linkability", "match profile", "microdata", "neighbourhood",
  "null token", "perturbed field", "population unique", "primary sampling unit", "protected field", "record linkage", "release",
  "reversible", "secret field", "seed", "seed fingerprint", "sensitive field", "singleton", "sister release",
  "special unique", "stratum", "suppression", "survey weight", "swap field", "t-closeness", "verdict", "weak seed", "webhook",
];

const SNAKE = /^[a-z][a-z0-9]*([_.][a-z0-9]+)+$/;

let known = { glossary: [], measures: [], figures: [] };
let meanings = new Map();
let pattern = null;

/** Takes the words that the service made of its glossary and its measures. */
export function learn(words) {
  known = words;
  meanings = new Map(known.glossary.map(({ term, meaning }) => [term, meaning]));
  const terms = EXPLAINED.filter((term) => meanings.has(term)).sort((one, other) => other.length - one.length);
  pattern = terms.length ? new RegExp(`\\b(${terms.join("|")})(s?)\\b`, "i") : null;
}

export const measures = () => known.measures;

export const figures = (...kinds) => known.figures.filter(({ kind }) => kinds.includes(kind));

/** Returns the better values of a figure in words. */
export const better = (goal) =>
  ({ low: "lower is better", high: "higher is better", near: "best near the source's" })[goal] ?? "";

/** Returns a key such as `swap_fields` as "Swap fields". */
export function label(name) {
  if (Object.hasOwn(LABELS, name)) return LABELS[name];
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Returns the title of a schema's property, unless the title only repeats the name. */
export function titled(name, { title } = {}) {
  const derived = name.split("_").map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join(" ");
  return title && title !== derived && title.includes(" ") ? title : label(name);
}

/** Returns one of the values that a parameter may have in words. */
export const valueWords = (value) => (/^[a-z_]+$/.test(value) ? value.replaceAll("_", " ") : value);

/** Returns the words for a kind of value, by the title of its schema. */
export const kindWords = (title) =>
  KINDS[title] ?? title.replace(/Params$/, "").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();

/** Returns what a key in a text stands for: a measure, a figure, a parameter or a value. */
function spoken(key) {
  const token = key.replace(/\s+/g, " ");
  if (Object.hasOwn(SPOKEN, token)) return SPOKEN[token];
  const found =
    known.measures.find((each) => each.key === token)?.title ??
    known.figures.find((each) => each.name === token)?.words;
  if (found) return `“${found}”`;
  if (Object.hasOwn(LABELS, token) || /_fields?$/.test(token)) return `“${label(token)}”`;
  return `“${SNAKE.test(token) ? token.replace(/[_.]/g, " ") : token}”`;
}

/** Returns the name of a figure or a measure for people. */
export const figureWords = (name) =>
  known.figures.find((each) => each.name === name)?.words ??
  known.measures.find((each) => each.key === name)?.title ??
  name.replace(/[_.]/g, " ");

const QUOTED = /'([a-z][a-z0-9_.]*)'/g;

const isKnown = (key) => Object.hasOwn(LABELS, key) || known.figures.some((each) => each.name === key);

const quotedInWords = (whole, key) => (isKnown(key) ? spoken(key) : whole);

/** Returns a sentence about a table for people: quoted parameters and figures become words, names of fields stay as they are. */
export const sayOfTable = (sentence) => sentence.replace(QUOTED, quotedInWords);

/**
 * Returns an error of the API for people. A single word in quotes, such as `target`, may be the name of a field: only
 * keys of several words become words.
 */
export const sayError = (text) =>
  text.replace(QUOTED, (whole, key) => (SNAKE.test(key) ? quotedInWords(whole, key) : whole));

/** Returns a text of the API for people: keys in backticks become words. */
export const say = (text) =>
  text
    .replace(/`([^`]*)`/g, (_, key) => spoken(key))
    .replaceAll("`", "'")
    .replace(QUOTED, quotedInWords);

/** Returns a description from the API for people. It names no field of a table, so that every key becomes words. */
export const describe = (text) =>
  say(text).replace(/\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b/g, (key) =>
    Object.hasOwn(LABELS, key) ? spoken(key) : key.replaceAll("_", " "),
  );

/** Splits a text at the first term that is not in `explained`: [before, term as written, its meaning, after]. */
export function splitAtTerm(text, explained) {
  let from = 0;
  while (pattern && from < text.length) {
    const found = pattern.exec(text.slice(from));
    if (!found) return null;
    const at = from + found.index;
    const term = found[1].toLowerCase();
    const end = at + found[0].length;
    if (!explained.has(term)) {
      explained.add(term);
      return [text.slice(0, at), text.slice(at, end), meanings.get(term), text.slice(end)];
    }
    from = end;
  }
  return null;
}
