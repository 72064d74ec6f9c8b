// View to run one service on one table: form, plan and run.

import * as api from "../api.js";
import { Unreadable } from "../inputs.js";
import { alarm, element, facts, shown } from "../dom.js";
import { glossed } from "../glossary.js";
import { form, point, pointToUnreadable } from "../form.js";
import { inForm } from "../problem_words.js";
import { navigateUnlessLeft } from "../router.js";
import { ROLE_OPTIONS, suggesting, suggestion, WEIGHT_OPTIONS } from "../roles.js";
import { resolverOf } from "../schema_controls.js";
import * as session from "../session.js";
import { trialOf } from "./before_after.js";
import { about, loadTable, trail } from "./table.js";
import { bytes, counted, number } from "../format.js";

const PREVIEW_ROWS = 20;
const OWN = ["source", "parameters", "validate_only", "preview_rows", "destination", "webhook"];
/* Members that the view handles separately (table, parameters, preview), or that only programs use. */

export async function view([id, identifier], signal) {
  const [table, service, document] = await Promise.all([
    loadTable(id, signal),
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
  if (draft) parameters.set(draft.parameters);
  const options = form(
    schema,
    { document, fields, suggest: startOf(fields) },
    { without: OWN, allInTheOpen: true },
  );
  const { measures, candidates } = draft?.options ?? {};
  if (measures || candidates) options.set({ report: "full", ...draft.options });
  const place = `${id}.${identifier}`;
  const kept = draft ? null : session.entered(place);
  if (kept) {
    parameters.set(kept.parameters, kept.suggested?.parameters);
    options.set(kept.options, kept.suggested?.options);
  }
  const keep = keeping(place, () => {
    const report = resolverOf(document)(schema).properties.report.default; // a default has no value of its own
    return {
      parameters: parameters.value(),
      options: { report, ...withoutSeed(options.value()) },
      suggested: { parameters: parameters.suggestions(), options: options.suggestions() },
    };
  });
  if (draft) keep(); // a reload would bring back what was entered before
  const call = () => ({
    source: { buffer: id },
    parameters: parameters.value(),
    ...optionsOf(options.value()),
  });
  const parts = { ...options.parts, parameters: parameters };
  const path = `v1/services/${encodeURIComponent(identifier)}`;
  return {
    help: `services/${encodeURIComponent(identifier)}`,
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
      element("p", { class: "lead" }, ...glossed(service.summary)),
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
              kept
                ? "Filled in as you left it. Empty controls have their defaults."
                : draft
                ? "Filled in with the parameters that you chose. Empty controls have their defaults."
                : "The ticks and choices follow from the fields' roles and are only suggestions. Empty controls have their defaults.",
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
        (job) => planned(job, service.parameters_schema.properties),
        { asked: { preview_rows: PREVIEW_ROWS }, keep },
      ),
    ],
  };
}

const OF_ROLES = [...ROLE_OPTIONS, ...WEIGHT_OPTIONS];

const startOf = (fields) => (name, schema, path) => {
  if (name === "report" && !path.length) return "full"; // required for the pictures
  return OF_ROLES.includes(name) ? suggestion(name, schema, fields) : undefined;
};

/** Returns the options of the request. Suggested roles are dropped if nothing is measured. */
function optionsOf({ measures, ...rest }) {
  const measured = rest.report === "full" || rest.candidates !== undefined;
  const wished = Object.keys(measures ?? {}).filter((name) => !OF_ROLES.includes(name));
  if (!measured && !wished.length) return rest;
  return measures ? { ...rest, measures } : rest;
}

/** Returns a function that stores what `read()` returns as entered in the form of a place. */
export function keeping(place, read) {
  return () => {
    try {
      session.keepEntered(place, read());
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error; // what cannot be read is not kept
    }
  };
}

/** Returns the options without the seed, which is a secret and is not stored. */
export const withoutSeed = ({ seed, ...others }) => others;

/**
 * Creates a form with a preview and a run button. `path` is requested with `call()` as its body; `planned`
 * renders the response to the preview, for which the members `asked` are added to the request; `keep()` is
 * called after each change of the form.
 */
export function requestForm(path, call, parts, inside, planned, { asked = {}, keep = () => {} } = {}) {
  const said = element("p", { class: "quiet", role: "status" });
  const output = element("div", { class: "said" });
  const preview = element("button", { type: "button" }, "Preview");
  const run = element("button", { class: "primary" }, "Run");
  const attempt = async (words, ask) => {
    point(parts, []);
    preview.disabled = run.disabled = true;
    output.replaceChildren();
    said.textContent = words;
    try {
      await ask();
    } catch (error) {
      const placeless = point(parts, error.errors ?? []);
      const alert = alarm(inForm(error, parts));
      output.replaceChildren(alert);
      if (error instanceof Unreadable) pointToUnreadable(error);
      else if (placeless.length || !error.errors?.length) alert.focus();
    } finally {
      said.textContent = "";
      preview.disabled = run.disabled = false;
    }
  };
  preview.addEventListener("click", () =>
    attempt("Checking …", async () => {
      const job = await api.post(path, { ...call(), validate_only: true, ...asked });
      const plan = element(
        "section",
        { class: "plan", tabindex: "-1", "aria-label": "Preview" },
        planned(job),
      );
      output.replaceChildren(plan);
      plan.focus();
    }),
  );
  const create = api.postOnce();
  const submit = (event) => {
    event.preventDefault();
    const proceed = navigateUnlessLeft();
    attempt("Submitting …", async () => {
      const job = await create(path, call(), { prefer: "respond-async" });
      proceed("jobs", job.id);
    });
  };
  return element(
    "form",
    { onsubmit: submit, oninput: keep, onchange: keep, onclick: keep, novalidate: true },
    inside,
    element(
      "div",
      { class: "actions sticky" },
      preview,
      run,
      element("span", { class: "quiet" }, "A preview stores nothing."),
    ),
    said,
    output,
  );
}

/** Facts about the guarantee of the permutation mechanism. */
function guaranteed({ epsilon, paper_bound: bound, rate, least_epsilon: least, rate_of_least_epsilon: at }) {
  return [
    ["Epsilon", (epsilon ?? null) === null ? "no finite one" : number(epsilon)],
    ["Bound of the paper", number(bound)],
    ["Rate", number(rate)],
    ["Least epsilon of any rate", `${number(least)}, at rate ${number(at)}`],
  ];
}

/** Sizes of the groups, or the least of them if only the run can know more. */
function sizes({ smallest, median, largest }, exact) {
  if (!exact) return `${number(smallest)} or more; the run finds the sizes`;
  return `${number(smallest)} to ${number(largest)}, median ${number(median)}`;
}

/** Facts about the rows that are expected to take part, one for all fields with the same number. */
function takingPart({ rows, expected_part_by_field: expected }) {
  const byNumber = Map.groupBy(Object.keys(expected ?? {}), (name) => expected[name]);
  return [...byNumber].map(([part, names]) => [
    byNumber.size > 1 ? `Rows that take part, ${names.map(shown).join(", ")}` : "Rows that take part",
    part === rows ? "all" : `${Number.isInteger(part) ? "" : "about "}${number(Math.round(part))} of ${number(rows)}`,
  ]);
}

/** Sentence about the rows that take no part, by the `parameters` that the service has. */
function partnerless({ unswappable_rows: alone, unswappable_groups: groups }, { suppression, unmatched }) {
  const rows = counted(alone, "row");
  const those = alone === 1 ? "it" : "them";
  if (suppression) {
    return alone
      ? `${rows} in ${counted(groups, "group")} cannot be swapped: the parameter suppression decides what happens to ${those}.`
      : "Every row with values has a swap partner, as far as can be determined without a draw.";
  }
  if (unmatched) {
    return alone
      ? `${rows} of households that must be swapped have no similar household elsewhere: the parameter unmatched decides what happens to ${those}.`
      : "Every household that must be swapped has a similar one elsewhere, as far as can be determined without a draw.";
  }
  return alone
    ? `${rows} without a number in some field would be published as ${alone === 1 ? "it is" : "they are"}.`
    : "The table and the parameters fit each other.";
}

/** Renders the plan of a run of a service with these parameters. */
function planned({ plan, parameters: { household, unit_id: unit } }, parameters) {
  const { group_size: size } = plan;
  const members = unit ? "Units" : household && parameters.suppression ? "Households" : "Rows";
  return [
    element("h2", {}, "What a run would do"),
    element("p", { class: plan.unswappable_rows ? "warning" : "good" }, partnerless(plan, parameters)),
    facts([
      ["Rows", number(plan.rows)],
      ["Groups", number(plan.groups)],
      [`${members} of a group`, sizes(size, plan.group_size_is_exact)],
      ...takingPart(plan),
      ["Estimated memory", bytes(plan.estimated_memory_bytes)],
      ...(plan.guarantee ? guaranteed(plan.guarantee) : []),
    ]),
    ...(plan.trial ? trialOf(plan.trial, plan.rows) : []),
    plan.guarantee ? element("p", { class: "quiet" }, shown(plan.guarantee.holds_for)) : null,
  ];
}
