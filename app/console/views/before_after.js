// Rows before and after: of a trial run in a preview, and of a job's result.

import * as api from "../api.js";
import { alarm, element, named, newId, shown } from "../dom.js";
import { beforeAndAfter, crossTable } from "../rows_table.js";
import * as session from "../session.js";
import { counted, number, percent } from "../format.js";

const ROWS = 20;

/** Describes the number of changed values of each field that changed. */
function changes({ fields, rows_read: rows }) {
  const some = fields.filter((field) => field.changed);
  if (!some.length) return element("p", {}, "No value has changed.");
  return element(
    "p",
    {},
    `Changed in ${counted(rows, "row")}: `,
    some.flatMap((field, at) => [
      at ? ", " : "",
      named(field.name),
      ` ${number(field.changed)} (${percent(field.changed / rows)})`,
    ]),
    ".",
  );
}

const SMALLER_GROUPS = " The groups of the run are larger, too: a row without a partner here may have one in the run.";

/** Creates the section of a preview with the rows of its trial run; the run takes `rows` rows. */
export function trialOf(trial, rows) {
  const heading = element("h3", {}, "A trial run on the first rows");
  if (trial.error)
    return [
      heading,
      element(
        "p",
        { class: "quiet" },
        `There is none: the first ${counted(trial.rows_read, "row")} alone cannot be run (${shown(trial.error)}).`,
      ),
    ];
  return [
    heading,
    element(
      "p",
      { class: "quiet" },
      `Made with the first ${counted(trial.rows_read, "row")} and a seed that is thrown away. The run takes all rows and another seed, so its values differ.${trial.rows_read < rows ? SMALLER_GROUPS : ""}`,
    ),
    changes(trial),
    beforeAndAfter(trial, "Rows of the trial run, changed values below the old ones"),
  ];
}

/** Creates a link to the tables, for a job whose source is not among those of this tab. */
export const openTable = () => element("a", { href: "#/" }, "Open the job's table");

/** Creates the section of a job's page with rows before and after; null without its source in this tab. */
export function beforeAndAfterOf(job) {
  if (job.kind !== "swap" || job.state !== "succeeded") return null;
  const table = session.tables().find((one) => one.digest === job.source.digest);
  const holder = element("div", {});
  const section = element(
    "section",
    { "aria-labelledby": "before-after" },
    element("h2", { id: "before-after" }, "Rows before and after"),
    holder,
  );
  if (!table) {
    holder.append(
      element("p", { class: "quiet" }, openTable(), " in this tab to see its rows before and after."),
    );
    return section;
  }
  const path = `v1/jobs/${encodeURIComponent(job.id)}/comparison`;
  const ask = (more) =>
    api.get(`${path}?${new URLSearchParams({ source: table.id, rows: ROWS, ...more })}`);
  ask({}).then(
    (found) => holder.replaceChildren(...resultOf(found, ask)),
    (error) => holder.replaceChildren(alarm(error)),
  );
  holder.append(element("p", { class: "quiet" }, "Comparing …"));
  return section;
}

function resultOf(found, ask) {
  const rows = element("div", {});
  const said = element("div", { "aria-live": "polite" });
  const caption = (some) =>
    found.aligned
      ? `${some ? "The first rows with a change" : "The first rows"}, changed values below the old ones`
      : "The first rows of both tables: rows were dropped or shuffled, so they do not belong together";
  const show = (one, some) => rows.replaceChildren(...beforeAndAfter(one, caption(some)));
  show(found, false);
  const only = element("input", {
    type: "checkbox",
    id: newId("only"),
    onchange: async () => {
      const some = only.checked;
      try {
        const one = await ask({ only_changed: some });
        if (only.checked !== some) return; // a late response for the choice before
        show(one, some);
        said.replaceChildren();
      } catch (error) {
        said.replaceChildren(alarm(error));
      }
    },
  });
  return [
    found.aligned ? changes(found) : null,
    found.aligned
      ? element("div", { class: "tick unprinted" }, only, element("label", { for: only.id }, "Only rows with a change"))
      : null,
    rows,
    said,
    crossing(found.categories, ask),
  ].filter(Boolean);
}

/** Creates the form for a cross table of two categorical fields. */
function crossing(names, ask) {
  if (names.length < 2) return null;
  const holder = element("div", {});
  const said = element("p", { class: "hidden-words", role: "status" });
  const choice = (chosen) =>
    element(
      "select",
      { id: newId("cross") },
      names.map((name, at) => element("option", { value: String(at), selected: at === chosen }, shown(name))),
    );
  const [field, by] = [choice(0), choice(1)];
  const submit = async (event) => {
    event.preventDefault();
    try {
      const { crosstab } = await ask({ rows: 0, field: names[field.value], by: names[by.value] });
      holder.replaceChildren(...crossTable(crosstab));
      said.textContent = "Counted. The table follows.";
    } catch (error) {
      holder.replaceChildren(alarm(error));
    }
  };
  return element(
    "details",
    { class: "unprinted" },
    element("summary", {}, "Cross two fields"),
    element(
      "form",
      { class: "inline", onsubmit: submit },
      element("label", { for: field.id }, "Count"),
      field,
      element("label", { for: by.id }, "by"),
      by,
      element("button", {}, "Count pairs"),
    ),
    said,
    holder,
  );
}
