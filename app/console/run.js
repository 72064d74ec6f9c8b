// One service on one table: its form, what a run would do, and the run.

import * as api from "./api.js";
import { Unreadable } from "./controls.js";
import { alarm, element, facts } from "./dom.js";
import { form, point, pointToUnreadable } from "./form.js";
import { go } from "./places.js";
import { suggesting, suggestion } from "./roles.js";
import * as session from "./session.js";
import { about, known, trail } from "./table.js";
import { bytes, counted, number } from "./words.js";

const OWN = ["source", "parameters", "validate_only", "destination", "webhook"];
/* The table, the parameters and the preview have places of their own here; the rest is for programs. */

export async function view([id, identifier]) {
  const [table, service, document] = await Promise.all([
    known(id),
    api.getOnce(`v1/services/${encodeURIComponent(identifier)}`),
    api.contract(),
  ]);
  const { fields } = table;
  const { schema } = document.paths[`/v1/services/${identifier}`].post.requestBody.content[api.JSON_TYPE];
  const parameters = form(service.parameters_schema, {
    document: service.parameters_schema,
    fields,
    suggest: suggesting(fields, service),
  });
  const draft = session.takeDraft(identifier);
  if (draft) parameters.set(draft);
  const options = form(
    schema,
    { document, fields, suggest: startOf(fields) },
    { without: OWN, allInTheOpen: true },
  );
  const call = () => ({
    source: { buffer: id },
    parameters: parameters.value(),
    ...optionsOf(options.value()),
  });
  const parts = { ...options.parts, parameters: parameters };
  const path = `v1/services/${encodeURIComponent(identifier)}`;
  return {
    title: service.title,
    nodes: [
      trail(table),
      element(
        "h1",
        { tabindex: "-1" },
        service.title,
        " ",
        element("span", { class: "identifier" }, identifier),
      ),
      element("p", { class: "lead" }, service.summary),
      about(service, "h2"),
      asking(
        path,
        call,
        parts,
        [
          element(
            "section",
            { "aria-labelledby": "parameters" },
            element("h2", { id: "parameters" }, "Parameters"),
            element(
              "p",
              { class: "quiet" },
              draft
                ? "Filled in with the parameters that you chose. What is left empty has its default."
                : "What is ticked or chosen already follows from the fields' roles: a suggestion. What is left empty has its default.",
            ),
            parameters.node,
          ),
          element(
            "details",
            { class: "options" },
            element("summary", {}, "Report, candidates and other options"),
            options.node,
          ),
        ],
        planned,
      ),
    ],
  };
}

const startOf = (fields) => (name, schema, path) => {
  if (name === "report" && !path.length) return "full"; // the pictures are made of it
  return name === "key_fields" ? suggestion(name, schema, fields) : undefined;
};

/** The options as the call takes them: key fields were suggested, and are no wish where nothing is measured. */
function optionsOf({ measures, ...rest }) {
  const measured = rest.report === "full" || rest.candidates !== undefined;
  const { key_fields, ...wished } = measures ?? {};
  if (!measured && !Object.keys(wished).length) return rest;
  return measures ? { ...rest, measures } : rest;
}

/**
 * A form with a preview and a run. `path` is what is called with `call()`; `planned` makes nodes of
 * what the preview answers.
 */
export function asking(path, call, parts, inside, planned) {
  const said = element("div", { class: "said", "aria-live": "polite" });
  const preview = element("button", { type: "button" }, "Preview");
  const run = element("button", { class: "primary" }, "Run");
  const attempt = async (words, ask) => {
    point(parts, []);
    preview.disabled = run.disabled = true;
    said.replaceChildren(element("p", { class: "quiet" }, words));
    try {
      await ask();
    } catch (error) {
      const placeless = point(parts, error.errors ?? []);
      const told = alarm({ title: error.title, message: error.message, others: error.others ?? [] });
      said.replaceChildren(told);
      if (error instanceof Unreadable) pointToUnreadable(error);
      else if (placeless.length || !error.errors?.length) told.focus();
    } finally {
      preview.disabled = run.disabled = false;
    }
  };
  preview.addEventListener("click", () =>
    attempt("Checking …", async () => {
      const job = await api.post(path, { ...call(), validate_only: true });
      const plan = element(
        "section",
        { class: "plan", tabindex: "-1", "aria-label": "Preview" },
        planned(job),
      );
      said.replaceChildren(plan);
      plan.focus();
    }),
  );
  const submit = (event) => {
    event.preventDefault();
    attempt("Submitting …", async () => {
      const job = await api.post(path, call(), { prefer: "respond-async" });
      go("jobs", job.id);
    });
  };
  return element(
    "form",
    { onsubmit: submit, novalidate: true },
    inside,
    element(
      "div",
      { class: "actions sticky" },
      preview,
      run,
      element("span", { class: "quiet" }, "A preview runs nothing, and stores nothing."),
    ),
    said,
  );
}

/** What a run would do. */
function planned({ plan }) {
  const { group_size: size } = plan;
  const alone = plan.unswappable_rows;
  return [
    element("h2", {}, "What a run would do"),
    element(
      "p",
      { class: alone ? "warning" : "good" },
      alone
        ? `${counted(alone, "row")} in ${counted(plan.unswappable_groups, "group")} cannot be swapped: suppression says what becomes of ${alone === 1 ? "it" : "them"}.`
        : "No row is alone: each that has its values can be swapped, as far as can be told without a draw.",
    ),
    facts([
      ["Rows", number(plan.rows)],
      ["Groups", number(plan.groups)],
      [
        "Rows of a group",
        `${number(size.smallest)} to ${number(size.largest)}, median ${number(size.median)}`,
      ],
      ["Memory, at a guess", bytes(plan.estimated_memory_bytes)],
    ]),
  ];
}
