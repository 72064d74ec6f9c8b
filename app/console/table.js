// A table: its fields with types and roles, and the services that it can be given to.

import * as api from "./api.js";
import { records } from "./csv.js";
import { alarm, element, facts, named, newId, shown } from "./dom.js";
import { placeOf } from "./places.js";
import { ROLES, findings, guess } from "./roles.js";
import * as session from "./session.js";
import { counted, moment, number } from "./words.js";

const SAMPLE_CHARACTERS = 100_000;

const samples = new Map();

/** {buffer, fields, rows}: fields with their role, the guess and what it was made from. Throws Problem. */
export async function known(id) {
  const buffer = await api.get(`v1/buffers/${encodeURIComponent(id)}`);
  session.remember(buffer);
  const rows = samples.get(id) ?? (await sampleOf(id).catch(() => null)); // a type that CSV cannot carry
  if (rows) samples.set(id, rows);
  const found = findings(buffer.fields, rows);
  const given = session.roles(id);
  const fields = buffer.fields.map((field, at) => {
    const guessed = guess(field, found[at]);
    return { ...field, ...found[at], guessed, role: given.get(field.name) ?? guessed.role };
  });
  return { buffer, fields, rows, name: session.tables().find((one) => one.id === id)?.name ?? id };
}

async function sampleOf(id) {
  const { text, whole } = await api.firstCharacters(id, SAMPLE_CHARACTERS);
  return records(text, whole).slice(1);
}

export async function view([id]) {
  const [table, services] = await Promise.all([known(id), api.listServices()]);
  const { buffer, fields, rows, name } = table;
  const naming = element("div", { "aria-live": "polite" });
  const tellNaming = () => naming.replaceChildren(...stillNaming(fields));
  tellNaming();
  const guessed = rows
    ? `The roles are a guess, from the names, the types and the first ${counted(rows.length, "row")}. Nobody but you knows what the fields mean: correct what is wrong.`
    : "The roles are a guess, from names and types alone. Nobody but you knows what the fields mean: correct what is wrong.";
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
          fields.map((field) => fieldOf(id, field, tellNaming)),
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
          element("a", { href: placeOf("tables", id, "compare") }, "Compare several by risk and utility"),
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

/** The fields that name a person, which stay in the result unless somebody takes them out. */
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

function fieldOf(id, field, corrected) {
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
  const told = [field.type];
  if (field.rows)
    told.push(counted(field.distinct, "different value"), field.nulls ? counted(field.nulls, "null") : null);
  return element(
    "li",
    {},
    element("label", { for: select.id }, named(field.name)),
    element("span", { class: "quiet" }, told.filter(Boolean).join(" · ")),
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
        { href: placeOf("tables", id, service.identifier) },
        service.title,
        " ",
        element("span", { class: "identifier" }, service.identifier),
      ),
    ),
    element("p", {}, service.summary),
    about(service, "h4"),
  );
}

/** The table that a view is about, as the way back to it. */
export function trail({ buffer, name }) {
  return element(
    "p",
    { class: "kind" },
    element("a", { href: placeOf("tables", buffer.id) }, named(name)),
    ` · ${counted(buffer.row_count, "row")}`,
  );
}

/** What a service promises and does not, folded away, under headings that follow the one before. */
export function about(service, heading) {
  const listing = (words, items) =>
    items.length
      ? [
          element(heading, {}, words),
          element(
            "ul",
            {},
            items.map((item) => element("li", {}, item)),
          ),
        ]
      : [];
  return element(
    "details",
    { class: "told" },
    element(
      "summary",
      {},
      "What it keeps, what it does not protect against",
      element("span", { class: "hidden-words" }, `: ${service.identifier}`),
    ),
    ...listing("Keeps and guarantees", service.guarantees),
    ...listing("Changes", service.changes),
    ...listing("Does not protect against", service.limits),
    ...listing("When to choose another", service.instead),
  );
}

function removal(id) {
  const said = element("div", {});
  return element(
    "section",
    { class: "beside", "aria-labelledby": "removal" },
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
