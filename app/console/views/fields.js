// Fields of a table: profile, type and role of each, and the copy of the table with what was changed.

import * as api from "../api.js";
import { bars, histogram } from "../chart.js";
import { alarm, element, named, newId, shown } from "../dom.js";
import { inForm } from "../problem_words.js";
import { navigateUnlessLeft } from "../router.js";
import { ROLES, ROLE_MEANINGS } from "../roles.js";
import * as session from "../session.js";
import { counted, number } from "../format.js";

const TYPES = ["bool", "int64", "float64", "string", "date", "timestamp"];

/** Labels of the members of a request to copy a table. */
const COPY_WORDS = {
  drop: { title: ROLES.drop },
  types: { title: "Type" },
  null_tokens: { title: "Missing values" },
};

/** Creates the section with all fields; `table` is what loadTable returned. */
export function fieldsSection({ buffer, fields, profile, name }) {
  const types = new Map();
  const naming = element("div", { "aria-live": "polite" });
  const changes = changesPanel(buffer, fields, types, name);
  const changed = () => {
    const warning = element("div", {}, stillNaming(fields));
    if (naming.textContent !== warning.textContent) naming.replaceChildren(warning); // screen readers announce it
    changes.show();
  };
  changed();
  return element(
    "section",
    { "aria-labelledby": "fields" },
    element("h2", { id: "fields" }, "Fields"),
    element("p", {}, basis(profile)),
    meanings(),
    element(
      "ul",
      { class: "fields" },
      fields.map((field) => fieldOf(buffer.id, field, types, changed)),
    ),
    naming,
    changes.node,
  );
}

/** States what the figures and the suggested roles follow from. */
function basis(profile) {
  const end = "Only you know what the fields mean: correct what is wrong.";
  if (!profile) return `The roles are suggested from names and types alone. ${end}`;
  const rows =
    profile.rows_read < profile.row_count
      ? `the first ${counted(profile.rows_read, "row")}`
      : `all ${counted(profile.row_count, "row")}`;
  return `Figures and suggested roles are of ${rows}. ${end}`;
}

const meanings = () =>
  element(
    "details",
    {},
    element("summary", {}, "What the roles mean"),
    element(
      "dl",
      { class: "facts" },
      Object.entries(ROLES).map(([role, words]) =>
        element("div", {}, element("dt", {}, words), element("dd", {}, ROLE_MEANINGS[role])),
      ),
    ),
  );

/** Warns about identifying fields, which remain in the result unless they are removed. */
function stillNaming(fields) {
  const some = fields.filter((field) => ["identifier", "household"].includes(field.role));
  if (!some.length) return [];
  const names = some.flatMap((field, at) => [at ? ", " : "", named(field.name)]);
  const words =
    some.length === 1
      ? "This field names a person or a household, and no service leaves it out: "
      : "These fields name a person or a household, and no service leaves them out: ";
  const advice = ". Choose “Leave it out” where the release does not need it.";
  return [element("p", { class: "warning" }, words, names, advice)];
}

/** Describes a field's nulls, different values and range. */
function figures({ rows, distinct, distinct_is_exact: exact, nulls, minimum, maximum }) {
  if (rows === undefined) return [];
  const different = exact || distinct ? `${exact ? "" : "over "}${counted(distinct, "different value")}` : null;
  const range = minimum === undefined ? null : `${minimum} to ${maximum}`;
  return [different, nulls ? counted(nulls, "null") : "no nulls", range].filter(Boolean);
}

function chartOf(field) {
  if (field.histogram) return histogram(field.histogram, shown(field.name));
  if (!field.values) return null;
  const listed = field.values.slice(0, 5);
  const rest = field.rows - field.nulls - listed.reduce((sum, { count }) => sum + count, 0);
  return bars(listed, rest);
}

function fieldOf(id, field, types, changed) {
  const role = element(
    "select",
    {
      id: newId("role"),
      onchange: () => {
        field.role = role.value;
        session.setRole(id, field.name, field.role);
        changed();
      },
    },
    Object.entries(ROLES).map(([value, words]) => element("option", { value }, words)),
  );
  role.value = field.role;
  const known = TYPES.includes(field.type) ? TYPES : [field.type, ...TYPES];
  const type = element(
    "select",
    {
      id: newId("type"),
      "aria-label": `Type of ${shown(field.name)}`,
      onchange: () => {
        if (type.value === field.type) types.delete(field.name);
        else types.set(field.name, type.value);
        changed();
      },
    },
    known.map((each) => element("option", { value: each, selected: each === field.type }, each)),
  );
  return element(
    "li",
    {},
    element("label", { for: role.id }, named(field.name)),
    element("span", { class: "quiet" }, figures(field).join(" · ")),
    chartOf(field),
    role,
    element("small", { class: "quiet" }, `suggested: ${ROLES[field.guessed.role].toLowerCase()}, because ${field.guessed.why}`),
    element("div", { class: "type" }, element("span", { class: "quiet", "aria-hidden": "true" }, "Type"), type),
  );
}

/** Creates the panel that makes a copy of the table with other types and without fields. */
function changesPanel(buffer, fields, types, name) {
  const said = element("div", { "aria-live": "polite" });
  const words = element("p", {});
  const tokens = element("input", {
    id: newId("tokens"),
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "such as NA, ?",
    oninput: () => show(),
  });
  const nullTokens = () =>
    tokens.value
      .split(",")
      .map((each) => each.trim())
      .filter(Boolean);
  const dropped = () => fields.filter((field) => field.role === "drop").map((field) => field.name);
  const make = element("button", { class: "primary" }, "Make the changed table");
  const create = api.postOnce();
  const submit = async (event) => {
    event.preventDefault();
    const proceed = navigateUnlessLeft();
    make.disabled = true;
    said.replaceChildren(element("p", { class: "quiet" }, "Copying …"));
    try {
      const left = dropped();
      const changes = {
        drop: left,
        types: Object.fromEntries([...types].filter(([field]) => !left.includes(field))),
        null_tokens: nullTokens(),
      };
      const made = await create(`v1/buffers/${encodeURIComponent(buffer.id)}/copies`, changes);
      session.remember(made, name, session.tables().find((one) => one.id === buffer.id)?.csv);
      for (const [field, role] of session.roles(buffer.id))
        if (role !== "drop") session.setRole(made.id, field, role);
      proceed("tables", made.id);
    } catch (error) {
      const problem = alarm(inForm(error, COPY_WORDS));
      said.replaceChildren(problem);
      problem.focus();
      make.disabled = false;
    }
  };
  const summary = element("summary", {}, "Change types, leave fields out, or mark missing values");
  const node = element(
    "details",
    { class: "panel" },
    summary,
    element(
      "p",
      {},
      "Choose another type of a field, or the role “Leave it out”. The changes make a copy; the table itself stays until it is deleted.",
    ),
    element(
      "form",
      { onsubmit: submit },
      element(
        "div",
        { class: "control" },
        element("label", { for: tokens.id }, "Texts that mean a missing value, separated by commas"),
        tokens,
      ),
      words,
      element("div", { class: "actions" }, make),
    ),
    said,
  );
  const show = () => {
    const left = dropped();
    const converted = [...types].filter(([field]) => !left.includes(field));
    const listed = (some) => some.flatMap((part, at) => [at ? ", " : "", part]);
    const parts = [
      left.length ? ["Left out: ", ...listed(left.map((field) => named(field))), ". "] : [],
      converted.length
        ? ["Converted: ", ...listed(converted.map(([field, type]) => element("span", {}, named(field), ` to ${type}`))), ". "]
        : [],
      nullTokens().length ? [`Missing values: ${nullTokens().map(shown).join(", ")}.`] : [],
    ].flat();
    words.replaceChildren(...(parts.length ? parts : ["Nothing is changed yet."]));
    make.disabled = !parts.length;
    if (left.length || converted.length) node.open = true;
  };
  return { node, show };
}

const SEPARATED = /^[-+]?([1-9]\d{0,2}([.,'’\s]\d{3})+|\d+)([.,]\d+)?\s?[%€$£]?$/;

/** Warns about texts that look like numbers, which no service can use as numbers. */
export function numbersDoubt(fields, rows) {
  const looksNumeric = (at) => {
    const cells = rows.map((row) => row[at]).filter((cell) => cell !== null);
    return cells.every((cell) => SEPARATED.test(cell)) && cells.some((cell) => /\D/.test(cell));
  };
  const odd = fields.filter((field, at) => field.type === "string" && at < (rows[0]?.length ?? 0) && looksNumeric(at));
  if (!odd.length) return null;
  const some = odd.slice(0, 5).flatMap((field, at) => [at ? ", " : "", named(field.name)]);
  return element(
    "p",
    { class: "warning" },
    some,
    odd.length === 1 ? " looks like numbers, but is text. " : " look like numbers, but are text. ",
    "Separators of thousands, percent and currency signs, or words such as NA in some cells make a field of text. Mark words that mean " +
      "a missing value, and choose the type, below the fields; remove the other causes from the file and upload it again. " +
      "For a decimal comma choose the decimal mark below “How the CSV is written”.",
  );
}

/** Warns about names that look like data, because the file had no header. */
export function headerDoubt(fields) {
  const odd = fields.filter((field) => /^[-+]?\d+([.,]\d+)?$/.test(field.name));
  if (!odd.length) return null;
  const some = odd.slice(0, 5).flatMap((field, at) => [at ? ", " : "", named(field.name)]);
  return element(
    "p",
    { class: "warning" },
    `The ${number(odd.length) === "1" ? "name" : "names"} `,
    some,
    " look like data: perhaps the file has no header, and its first row became names. Upload it again as a file without a header.",
  );
}
