// View of two jobs next to each other: headlines, parameters that differ, and measures.

import * as api from "../api.js";
import { isNumber, stringify } from "../exact_json.js";
import { element, facts, named, shown, table } from "../dom.js";
import { headlineOf } from "../headline.js";
import { nameOf } from "./jobs.js";
import { routeHref } from "../router.js";
import { moment, number, written } from "../format.js";
import { label } from "../words.js";

const BETTER = { low: "less is better", high: "more is better", near: "near the source's is better" };

export async function view(ids) {
  const services = await api.listServices();
  const both = await Promise.all(ids.map((id) => load(id)));
  const heads = both.map(
    ({ job }, index) => `${index + 1}: ${job.kind === "swap" ? job.service : nameOf(job, services)}`,
  );
  return {
    help: "console",
    title: "Two jobs",
    nodes: [
      element("p", { class: "kind" }, element("a", { href: "#/jobs" }, "Jobs")),
      element("h1", { tabindex: "-1" }, "Two jobs next to each other"),
      both[0].job.source.digest === both[1].job.source.digest
        ? null
        : element("p", { class: "warning" }, "The jobs have different sources: their figures compare only roughly."),
      element(
        "div",
        { class: "two" },
        both.map(({ job, report }, index) =>
          element(
            "section",
            { "aria-label": heads[index] },
            element("h2", {}, element("a", { href: routeHref("jobs", job.id) }, heads[index])),
            facts([
              ["Submitted", moment(job.created_at)],
              ["State", job.state],
              ["Rows", number(job.row_count)],
            ]),
            headlineOf(report, `In three sentences, ${heads[index]}`),
          ),
        ),
      ),
      differences(both.map(({ job }) => job), heads),
      measures(both.map(({ report }) => report.measures ?? {}), heads),
    ].filter(Boolean),
  };
}

async function load(id) {
  const path = `v1/jobs/${encodeURIComponent(id)}`;
  const job = await api.get(path);
  const report = await api.get(`${path}/report`).catch((error) => {
    if (error.status === 404 || error.status === 409) return {};
    throw error;
  });
  return { job, report };
}

/** Creates the table of the parameters that differ. */
function differences(jobs, heads) {
  const given = jobs.map((job) => ({ ...job.parameters, ...job.options }));
  const names = [...new Set(given.flatMap(Object.keys))].filter(
    (name) => stringify(given[0][name]) !== stringify(given[1][name]),
  );
  if (!names.length) return element("p", {}, "All parameters are equal.");
  return element(
    "section",
    { "aria-labelledby": "differences" },
    element("h2", { id: "differences" }, "Parameters that differ"),
    table(
      "Parameters",
      ["Parameter", ...heads],
      names.map((name) => ({
        cells: [
          label(name),
          ...given.map((each) => (each[name] === undefined ? "–" : named(shown(written(each[name]))))),
        ],
      })),
    ),
  );
}

/** Returns the numbers in a measure's value by path, down to the second level; values by field are left out. */
function numbersOf(value, fields, path = "") {
  if (isNumber(value)) return [[path, value]];
  if (value === null || typeof value !== "object" || Array.isArray(value) || path.includes(".")) return [];
  return Object.entries(value).flatMap(([name, each]) =>
    fields.has(name) || name === "by_field" ? [] : numbersOf(each, fields, path ? `${path}.${name}` : name),
  );
}

/** Creates the table of the measures that both reports have, by what they concern. */
function measures([one, other], heads) {
  const rows = Object.entries(one)
    .filter(([key]) => key in other)
    .flatMap(([key, each]) => {
      const fields = new Set([...(each.fields ?? []), ...Object.keys(each.per_row ? each.value : {})]);
      const second = new Map(numbersOf(other[key].value, fields));
      return numbersOf(each.value, fields)
        .filter(([path]) => second.has(path))
        .map(([path, value]) => ({
          cells: [
            `${each.title}${path ? `: ${path.replaceAll("_", " ").replaceAll(".", ", ")}` : ""}`,
            each.concerns,
            number(value),
            number(second.get(path)),
            path ? each.range : `${BETTER[each.goal] ?? ""}; ${each.range}`, // parts have goals of their own
          ],
        }));
    });
  if (!rows.length)
    return element("p", { class: "quiet" }, "There is no measure that both reports have: both need the report 'full'.");
  return element(
    "section",
    { "aria-labelledby": "measures" },
    element("h2", { id: "measures" }, "Measures"),
    table("Measures that both reports have", ["Measure", "Concerns", ...heads, "Better, and range"], rows),
  );
}
