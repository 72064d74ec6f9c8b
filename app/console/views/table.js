// View of a table: fields with types and roles, and the services to run on it.

import * as api from "../api.js";
import { records } from "../csv.js";
import { alarm, element, facts, named, newId, shown } from "../dom.js";
import { routeHref } from "../router.js";
import { ROLES, findings, guess } from "../roles.js";
import * as session from "../session.js";
import { counted, moment, number } from "../format.js";

const SAMPLE_CHARACTERS = 100_000;

const samples = new Map();

/** Returns {buffer, fields, rows}; fields have role, guess and reason. Throws Problem. */
export async function loadTable(id) {
  const buffer = await api.get(`v1/buffers/${encodeURIComponent(id)}`);
  session.remember(buffer);
  const rows = samples.get(id) ?? (await sampleOf(id).catch(() => null)); // for a type that CSV cannot represent
  if (rows) samples.set(id, rows);
  const found = findings(buffer.fields, rows);
  const given = session.roles(id);
  const fields = buffer.fields.map((field, index) => {
    const guessed = guess(field, found[index]);
    return { ...field, ...found[index], guessed, role: given.get(field.name) ?? guessed.role };
  });
  return { buffer, fields, rows, name: session.tables().find((one) => one.id === id)?.name ?? id };
}

async function sampleOf(id) {
  const { text, whole } = await api.firstCharacters(id, SAMPLE_CHARACTERS);
  return records(text, whole).slice(1);
}

export async function view([id]) {
  const [table, services] = await Promise.all([loadTable(id), api.listServices()]);
  const { buffer, fields, rows, name } = table;
  const naming = element("div", { "aria-live": "polite" });
  const tellNaming = () => naming.replaceChildren(...stillNaming(fields));
  tellNaming();
  const guessed = rows
    ? `The roles are a guess, from the names, the types and the first ${counted(rows.length, "row")}. Only you know what the fields mean: correct what is wrong.`
    : "The roles are a guess, from names and types alone. Only you know what the fields mean: correct what is wrong.";
  return {
    title: shown(name),
    nodes: [
      element("h1", { tabindex: "-1" }, named(name)),
      facts([
        ["Rows", number(buffer.row_count)],
        ["Fields", number(fields.length)],
        ["Kept until", moment(buffer.expires_at)],
        ["Digest", element("code", {}, buffer.digest)],
      ]),
      element(
        "section",
        { "aria-labelledby": "fields" },
        element("h2", { id: "fields" }, "Fields"),
        element("p", {}, guessed),
        element(
          "ul",
          { class: "fields" },
          fields.map((field) => fieldOf(id, field, buffer.row_count, tellNaming)),
        ),
        naming,
      ),
      element(
        "section",
        { "aria-labelledby": "services" },
        element("h2", { id: "services" }, "What should be done?"),
        element(
          "p",
          {},
          "Each service moves values in its own way. ",
          element("a", { href: routeHref("tables", id, "compare") }, "Compare several by risk and utility"),
          " if you are not sure.",
        ),
        element(
          "ul",
          { class: "services" },
          services.map((service) => serviceOf(id, service)),
        ),
      ),
      removal(id),
    ],
  };
}

/** Warns about identifying fields, which remain in the result unless they are removed. */
function stillNaming(fields) {
  const some = fields.filter((field) => field.role === "identifier");
  if (!some.length) return [];
  const names = some.flatMap((field, at) => [at ? ", " : "", named(field.name)]);
  const words =
    some.length === 1
      ? "This field names a person, and no service leaves it out: "
      : "These fields name a person, and no service leaves them out: ";
  const advice = ". Do so yourself, before the upload or before the release.";
  return [element("p", { class: "warning" }, words, names, advice)];
}

/** Describes a field's counts, stating the number of rows if only the first ones were read. */
function counts({ rows, distinct, nulls }, all) {
  if (!rows) return null;
  const found = [counted(distinct, "different value"), nulls ? counted(nulls, "null") : null];
  const words = found.filter(Boolean).join(", ");
  return rows < all ? `in the first ${counted(rows, "row")}: ${words}` : words;
}

function fieldOf(id, field, rows, corrected) {
  const select = element(
    "select",
    {
      id: newId("role"),
      onchange: () => {
        field.role = select.value;
        session.setRole(id, field.name, field.role);
        corrected();
      },
    },
    Object.entries(ROLES).map(([value, words]) => element("option", { value }, words)),
  );
  select.value = field.role;
  const details = [field.type, counts(field, rows)];
  return element(
    "li",
    {},
    element("label", { for: select.id }, named(field.name)),
    element("span", { class: "quiet" }, details.filter(Boolean).join(" · ")),
    select,
    element("small", { class: "quiet" }, `guessed: ${field.guessed.why}`),
  );
}

function serviceOf(id, service) {
  return element(
    "li",
    {},
    element(
      "h3",
      {},
      element(
        "a",
        { href: routeHref("tables", id, service.identifier) },
        service.title,
        " ",
        element("span", { class: "identifier" }, service.identifier),
      ),
    ),
    element("p", {}, service.summary),
    about(service, "h4"),
  );
}

/** Creates a link back to the table of a view. */
export function trail({ buffer, name }) {
  return element(
    "p",
    { class: "kind" },
    element("a", { href: routeHref("tables", buffer.id) }, named(name)),
    ` · ${counted(buffer.row_count, "row")}`,
  );
}

/** Splits a text into plain text and code, which stands between backticks. */
function withCode(text) {
  return text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

/** Creates collapsed sections with the guarantees and limits of a service, below the given heading level. */
export function about(service, heading) {
  const listing = (words, items) =>
    items.length
      ? [
          element(heading, {}, words),
          element(
            "ul",
            {},
            items.map((item) => element("li", {}, ...withCode(item))),
          ),
        ]
      : [];
  return element(
    "details",
    { class: "guarantees" },
    element(
      "summary",
      {},
      "What it keeps, what it does not protect against",
      element("span", { class: "hidden-words" }, `: ${service.identifier}`),
    ),
    ...listing("Keeps and guarantees", service.guarantees),
    ...listing("Changes", service.changes),
    ...listing("Does not protect against", service.limits),
    ...listing("What repeated releases reveal", service.repeated_releases),
    ...listing("When to choose another", service.instead),
  );
}

function removal(id) {
  const said = element("div", {});
  return element(
    "section",
    { class: "panel", "aria-labelledby": "removal" },
    element("h2", { id: "removal" }, "Done with it?"),
    element(
      "p",
      {},
      "Delete the table from the service now, instead of at its expiry. Jobs that ran on it keep their results.",
    ),
    element(
      "button",
      {
        type: "button",
        class: "danger",
        onclick: async () => {
          try {
            await api.send("DELETE", `v1/buffers/${encodeURIComponent(id)}`);
            session.forget(id);
            location.hash = "#/";
          } catch (error) {
            said.replaceChildren(alarm(error));
          }
        },
      },
      "Delete this table",
    ),
    said,
  );
}
