// View to attack the release of a run: what an intruder knows, what is secret, and the control rows.

import * as api from "../api.js";
import { element, newId, shown } from "../dom.js";
import { form } from "../form.js";
import { guess } from "../roles.js";
import { routeHref } from "../router.js";
import { keeping, requestForm, withoutSeed } from "./run.js";
import { loadTable } from "./table.js";
import * as session from "../session.js";
import { findSource } from "../source_table.js";
import { counted } from "../format.js";

const OWN = ["source", "job", "destination", "control", "aligned", "validate_only", "webhook"];
const ROLES_OF = {
  known: ["known", "stratum"],
  secret: ["sensitive"],
  identifiers: ["identifier", "household", "drop"],
  weights: ["weight"],
};

export async function view([id], signal) {
  const [job, document] = await Promise.all([
    api.get(`v1/jobs/${encodeURIComponent(id)}`),
    api.contract(),
  ]);
  await findSource(job);
  const tables = session.tables();
  const same = tables.find((one) => one.digest === job.source.digest);
  const table = same ? await loadTable(same.id, signal).catch(() => null) : null;
  const fields =
    table?.fields ?? job.source.fields.map((field) => ({ ...field, role: guess(field, null).role }));
  const suggest = (name, _, path) => {
    if (path.length || !(name in ROLES_OF)) return undefined;
    const found = fields.filter((field) => ROLES_OF[name].includes(field.role)).map((field) => field.name);
    return found.length ? found : undefined;
  };
  const { schema } = document.paths["/v1/attacks"].post.requestBody.content[api.JSON_TYPE];
  const options = form(schema, { document, fields, suggest }, { without: OWN, allInTheOpen: true });
  const control = controlRows(tables.filter((one) => one !== same));
  const place = `${job.id}.attack`;
  const kept = session.entered(place);
  if (kept) {
    options.set(kept.options, kept.suggested);
    control.restore(kept.control);
  }
  const keep = keeping(place, () => ({
    options: withoutSeed(options.value()),
    suggested: options.suggestions(),
    control: control.value(),
  }));
  const call = () => ({
    job: job.id,
    ...(table ? { source: { buffer: same.id } } : {}),
    ...(control.value() ? { control: { buffer: control.value() } } : {}),
    ...options.value(),
  });
  return {
    help: "attacks",
    title: "Attack a release",
    nodes: [
      element("p", { class: "kind" }, element("a", { href: routeHref("jobs", job.id) }, "The run")),
      element("h1", { tabindex: "-1" }, "Attack this release"),
      element(
        "p",
        { class: "lead" },
        "Could somebody find a person in this release, or learn something about a person? The attacks are made on the release, by guessing, and on rows that were not in the source.",
      ),
      requestForm(
        "v1/attacks",
        call,
        options.parts,
        [
          element(
            "section",
            { "aria-labelledby": "intruder" },
            element("h2", { id: "intruder" }, "What an intruder knows, and wants to learn"),
            element(
              "p",
              { class: "quiet" },
              "The ticks follow from the fields' roles and are only suggestions. Empty controls have their defaults.",
            ),
            table
              ? null
              : element(
                  "p",
                  { class: "quiet" },
                  "The source is not among the tables of this tab. The run can be attacked while the service still has the source; otherwise upload the source again first.",
                ),
            control.node,
            options.node,
          ),
        ],
        () => [
          element("h2", {}, "What would be attacked"),
          element(
            "p",
            { class: "good" },
            `The release of ${job.service}, with ${control.value() ? "the control rows that you chose" : "a sister release of nine tenths of the source"}; the fields fit.`,
          ),
        ],
        { keep },
      ),
    ],
  };
}

/** Creates the choice of control rows among the tables of this tab. */
function controlRows(tables) {
  const choice = element(
    "select",
    { id: newId("control") },
    element("option", { value: "" }, "a tenth of the source, withheld from a sister release"),
    tables.map((one) =>
      element("option", { value: one.id }, `${shown(one.name)}, ${counted(one.row_count, "row")}`),
    ),
  );
  return {
    node: element("div", { class: "control" }, element("label", { for: choice.id }, "Control rows"), choice),
    value: () => choice.value,
    restore: (id) => {
      choice.value = tables.some((one) => one.id === id) ? id : ""; // the table may have expired
    },
  };
}
