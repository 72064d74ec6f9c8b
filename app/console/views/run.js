// View to run one service on one table: form, plan and run.

import * as api from "../api.js";
import { Unreadable } from "../inputs.js";
import { alarm, element, facts } from "../dom.js";
import { form, point, pointToUnreadable } from "../form.js";
import { navigate } from "../router.js";
import { ROLE_OPTIONS, suggesting, suggestion } from "../roles.js";
import * as session from "../session.js";
import { about, loadTable, trail } from "./table.js";
import { bytes, counted, number } from "../format.js";

const OWN = ["source", "parameters", "validate_only", "destination", "webhook"];
/* Members that the view handles separately (table, parameters, preview), or that only programs use. */

export async function view([id, identifier]) {
  const [table, service, document] = await Promise.all([
    loadTable(id),
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
      requestForm(
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
  if (name === "report" && !path.length) return "full"; // required for the pictures
  return ROLE_OPTIONS.includes(name) ? suggestion(name, schema, fields) : undefined;
};

/** Returns the options of the request. Suggested roles are dropped if nothing is measured. */
function optionsOf({ measures, ...rest }) {
  const measured = rest.report === "full" || rest.candidates !== undefined;
  const wished = Object.keys(measures ?? {}).filter((name) => !ROLE_OPTIONS.includes(name));
  if (!measured && !wished.length) return rest;
  return measures ? { ...rest, measures } : rest;
}

/**
 * Creates a form with a preview and a run button. `path` is requested with `call()` as its body; `planned`
 * renders the response to the preview.
 */
export function requestForm(path, call, parts, inside, planned) {
  const output = element("div", { class: "said", "aria-live": "polite" });
  const preview = element("button", { type: "button" }, "Preview");
  const run = element("button", { class: "primary" }, "Run");
  const attempt = async (words, ask) => {
    point(parts, []);
    preview.disabled = run.disabled = true;
    output.replaceChildren(element("p", { class: "quiet" }, words));
    try {
      await ask();
    } catch (error) {
      const placeless = point(parts, error.errors ?? []);
      const alert = alarm({ title: error.title, message: error.message, others: error.others ?? [] });
      output.replaceChildren(alert);
      if (error instanceof Unreadable) pointToUnreadable(error);
      else if (placeless.length || !error.errors?.length) alert.focus();
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
      output.replaceChildren(plan);
      plan.focus();
    }),
  );
  const submit = (event) => {
    event.preventDefault();
    attempt("Submitting …", async () => {
      const job = await api.post(path, call(), { prefer: "respond-async" });
      navigate("jobs", job.id);
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
    output,
  );
}

/** Renders the plan of a run. */
function planned({ plan }) {
  const { group_size: size } = plan;
  const alone = plan.unswappable_rows;
  return [
    element("h2", {}, "What a run would do"),
    element(
      "p",
      { class: alone ? "warning" : "good" },
      alone
        ? `${counted(alone, "row")} in ${counted(plan.unswappable_groups, "group")} cannot be swapped: the parameter suppression decides what happens to ${alone === 1 ? "it" : "them"}.`
        : "Every row with values has a swap partner, as far as can be determined without a draw.",
    ),
    facts([
      ["Rows", number(plan.rows)],
      ["Groups", number(plan.groups)],
      [
        "Rows of a group",
        `${number(size.smallest)} to ${number(size.largest)}, median ${number(size.median)}`,
      ],
      ["Estimated memory", bytes(plan.estimated_memory_bytes)],
    ]),
  ];
}
