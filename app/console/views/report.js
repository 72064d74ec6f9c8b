// Report of a job: tables of candidates or frontier points, and the service's HTML report page.

import * as api from "../api.js";
import { alarm, element, named, shown, table } from "../dom.js";
import { frontierChart, valuesAround, withLimits } from "../frontier_chart.js";
import { framed, headlineOf, picturesOf } from "../headline.js";
import { navigate } from "../router.js";
import * as session from "../session.js";
import { counted, number, written } from "../format.js";
import { figureWords, label, sayOfTable } from "../words.js";

/** Returns {first, last}: headline and pictures, which begin a job's page, and the whole report, which ends it. */
export async function reportOf(job) {
  const path = `v1/jobs/${encodeURIComponent(job.id)}/report`;
  const inside = [element("h2", { id: "report" }, "Report")];
  const first = [];
  try {
    const [report, page] = await Promise.all([
      api.get(path),
      api.send("GET", path, { headers: { accept: "text/html" } }).then((answer) => api.bodyOf(answer, "text")),
    ]);
    first.push(headlineOf(report));
    if (report.verdict) first.push(verdict(report.verdict, report.advice));
    if (report.frontier) first.push(frontier(report.frontier, job));
    first.push(picturesOf(report, page));
    if (report.candidates) inside.push(candidates(report.candidates));
    inside.push(...printable(framed(page, "Report", "report")));
  } catch (error) {
    if (error.status !== 404 && error.status !== 409) inside.push(alarm(error));
    else inside.push(element("p", { class: "quiet" }, `There is none: ${error.message}`));
  }
  return { first: first.filter(Boolean), last: element("section", { "aria-labelledby": "report" }, inside) };
}

/** Adds a button that prints the report alone: in the print of the whole page, a frame would be cut anywhere. */
const printable = (frame) => [
  element(
    "div",
    { class: "actions" },
    element("button", { type: "button", onclick: () => frame.contentWindow.print() }, "Print the report"),
  ),
  element("p", { class: "only-printed" }, "The report is printed by itself: “Print the report” in the console."),
  frame,
];

const figure = (value) => (value === undefined || value === null ? "–" : number(value));

const quiet = (sentences) => (sentences.length ? [element("p", { class: "quiet" }, sentences.join(" "))] : []);

/** Lists the figures that do not rank, each with its reason. */
const unranked = (reasons, words = figureWords) =>
  Object.entries(reasons ?? {}).map(([name, reason]) => `${words(name)} ranks nothing: ${shown(reason)}.`);

/** Lists faults of a run that no figure shows: anyone can undo it, or it protects fewer fields. */
function faults({ reversible, protects_fewer: fewer, unprotected }) {
  const rows = Object.entries(reversible ?? {}).map(
    ([name, count]) => `${number(count)} ${name.replaceAll("_", " ")}`,
  );
  const found = rows.length ? [`anybody can undo it: ${rows.join(", ")}`] : [];
  if (unprotected?.length) found.push(`protects fewer fields: not ${unprotected.map(shown).join(", ")}`);
  else if (fewer) found.push("protects fewer fields than another one");
  return found;
}

/** States the epsilon of a run by the permutation mechanism; nothing of other runs. */
function epsilons({ guarantee }) {
  if (!guarantee) return [];
  const fields = Object.entries(guarantee.by_field).map(([name, value]) => `${shown(name)}: ${number(value)}`);
  const total = guarantee.epsilon === undefined ? "No finite epsilon" : `Epsilon ${number(guarantee.epsilon)}`;
  const parts = fields.length > 1 ? ` (${fields.join(", ")})` : "";
  return [`${total}${parts} at rate ${number(guarantee.rate)}`];
}

/** Creates the verdict on attacks, with its reasons. */
function verdict({ state, reasons }, advice) {
  return element(
    "section",
    { class: state === "low" ? "good" : "warning", "aria-label": "Verdict on attacks" },
    element("p", {}, element("strong", {}, `Risk: ${state}`)),
    element(
      "ul",
      {},
      reasons.map((reason) => element("li", {}, shown(reason))),
    ),
    advice ? element("p", {}, shown(sayOfTable(advice.sentence))) : null,
  );
}

/** Creates the table of candidate runs. */
function candidates({ rank_by: names, chosen, table: runs, left_out: reasons, verdict }) {
  return element(
    "div",
    {},
    verdict ? element("p", { class: "warning" }, shown(sayOfTable(verdict))) : null,
    quiet([
      ...unranked(reasons),
      ...(runs.some((run) => run.guarantee)
        ? ["Each epsilon is for one candidate alone; the kept candidate has none, because the choice depends on the source."]
        : []),
    ]),
    table(
      names.length
        ? `${counted(runs.length, "candidate")}; the candidate with the lowest mean rank was kept`
        : `${counted(runs.length, "candidate")}; the first one was kept`,
      ["Candidate", ...names.map(figureWords), "Rank", "Choice"],
      runs.map((run) => ({
        marked: run.index === chosen,
        cells: [
          String(run.index + 1),
          ...names.map((name) => figure(run.values[name])),
          figure(run.rank),
          [run.index === chosen ? "kept" : "", ...epsilons(run), ...faults(run)].filter(Boolean).join("; "),
        ],
      })),
    ),
  );
}

/** Says whose attacks the figures of risk are. */
const attackers = (fields) =>
  fields
    ? [
        `Attacks: an intruder who knows ${fields.known.map(shown).join(", ")} wants to learn ${fields.sensitive.map(shown).join(", ")}.`,
      ]
    : [];

/** Says what else the intervals of the figures on the axes cover. */
const covered = (names, figures, words) =>
  [...new Set(names)]
    .filter((name) => figures?.[name]?.interval_covers)
    .map((name) => `In brackets after ${words(name)}: its 95 % interval for other ${figures[name].interval_covers}.`);

/** Lists the figures of a point that are on no axis, with their intervals, collapsed; older reports have ranges over runs. */
function figuresOf({ figures, intervals, ranges }, axes, words, which) {
  const others = Object.entries(figures ?? {}).filter(([name]) => !axes.includes(name));
  if (!others.length) return "–";
  const limits = (name) => {
    if (intervals) return intervals[name];
    const [low, high] = ranges?.[name] ?? [];
    return ranges ? { low, high } : undefined;
  };
  const list = element(
    "ul",
    { class: "parameters" },
    others.map(([name, value]) =>
      element("li", { title: name }, `${words(name)}: ${withLimits(value, limits(name))}`),
    ),
  );
  const summary = element("summary", {}, `${counted(others.length, "figure")} `, element("span", { class: "hidden-words" }, `of point ${which}`));
  return element("details", { class: "opens-in-print" }, summary, list);
}

/** Creates the table of combinations, frontier first, each with a button to use it. */
function frontier(compared, job) {
  const { risk, utility, goals, points, axes, passed_over: passed, verdict, attacked, recommended } = compared;
  const source = session.tables().find((one) => one.digest === job.source.digest);
  const better = (goal) => ({ low: "less is better", high: "more is better" })[goal] ?? "";
  const words = (name) => shown(compared.figures?.[name]?.words ?? figureWords(name));
  const order = (point) => (point.error ? 2 : point.dominated ? 1 : 0);
  const sorted = [...points].sort((one, other) => order(one) - order(other) || one.risk - other.risk);
  const none = !points.some((point) => order(point) === 0);
  const constant = Object.entries(axes ?? {})
    .filter(([, axis]) => axis.constant)
    .map(([name, axis]) => `The figure of ${name} is constant and ranks nothing: ${shown(axis.reason)}.`);
  const chance = Object.entries(axes ?? {})
    .filter(([, axis]) => axis.baseline !== undefined)
    .map(([name, axis]) => `By chance alone the figure of ${name} is ${number(axis.baseline)}.`);
  const take = (point) =>
    element(
      "button",
      {
        type: "button",
        onclick: () => {
          session.setDraft(point.service, { parameters: point.parameters });
          navigate("tables", source.id, point.service);
        },
      },
      "Use",
      element("span", { class: "hidden-words" }, ` ${point.service} with these parameters`),
    );
  const picked = element("div", { class: "picked", "aria-live": "polite" });
  const chart = frontierChart({ risk: words(risk), utility: words(utility), goals, points }, (point, which) =>
    picked.replaceChildren(...taken(point, which, points, source)),
  );
  return element(
    "section",
    { "aria-label": "Comparison" },
    verdict ? element("p", { class: none ? "warning" : "good" }, shown(sayOfTable(verdict))) : null,
    chart,
    picked,
    element(
      "p",
      {},
      none ? "" : "Combinations that no other one beats come first, in bold.",
      source ? "" : " Upload the table again in this tab to run one of them.",
    ),
    recommended === undefined
      ? null
      : element(
          "p",
          { class: "good" },
          `You said that ${compared.matters} matters more: point ${recommended + 1}, ${points[recommended].service}, is the best by it.${close(compared)}${inNewRuns(compared)}`,
        ),
    quiet([
      ...attackers(attacked),
      ...constant,
      ...chance,
      ...covered([risk, utility], compared.figures, words),
      ...unranked(passed, words),
    ]),
    element("div", { class: "comparison" }, table(
      "All combinations",
      [
        "Service",
        "Parameters",
        `Risk: ${words(risk)} (${better(goals.risk)})`,
        `Utility: ${words(utility)} (${better(goals.utility)})`,
        "Protects",
        "Other figures",
        "Take on",
      ],
      sorted.map((point) => ({
        marked: order(point) === 0,
        cells: [
          point.service,
          [
            element(
              "ul",
              { class: "parameters" },
              Object.entries(point.parameters).map(([name, value]) =>
                element("li", {}, `${label(name)}: `, named(written(value))),
              ),
            ),
            point.error ? element("p", { class: "fault" }, shown(point.error)) : null,
            ...faults(point).map((fault) => element("p", { class: "fault" }, fault)),
            ...epsilons(point).map((stated) => element("p", {}, stated)),
            ...hardlyBetter(point).map((stated) => element("p", {}, stated)),
          ],
          point.risk === undefined ? "–" : withLimits(point.risk, point.risk_interval),
          point.utility === undefined ? "–" : withLimits(point.utility, point.utility_interval),
          (point.protects ?? []).map(shown).join(", ") || "–",
          figuresOf(point, [risk, utility], words, points.indexOf(point) + 1),
          source && !point.error ? take(point) : "",
        ],
      })),
    )),
  );
}

/** Names the points that differ from the recommended one by no more than the uncertainty. */
const close = ({ recommended_within_uncertainty: others }) =>
  others ? ` Point ${others.map((index) => index + 1).join(", ")} differs from it by no more than the uncertainty.` : "";

/** Describes the recommended point in new runs: those by which it was picked favour it. */
const inNewRuns = ({ recommended_in_new_runs: found, matters }) =>
  found?.[matters] === undefined
    ? ""
    : ` In new runs with other seeds its figure of ${matters} is ${withLimits(found[matters], found[`${matters}_interval`])}.`;

/** Names the points that are better by no more than the uncertainty. */
const hardlyBetter = ({ within_uncertainty_of: better }) =>
  better ? [`worse than point ${better.map((index) => index + 1).join(", ")} by no more than the uncertainty`] : [];

/** Describes a point of the chart, with buttons to run it and to try values around it. */
function taken(point, which, points, source) {
  const around = valuesAround(point, points);
  const listed = Object.entries(point.parameters).map(([name, value]) => `${label(name)}: ${written(value)}`);
  return [
    element(
      "p",
      {},
      element("strong", {}, `Point ${which}: ${point.service}`),
      ` with ${shown(listed.join(", "))}. ${[...epsilons(point), ...faults(point)].join("; ")}`,
    ),
    source
      ? element(
          "div",
          { class: "actions" },
          element(
            "button",
            {
              type: "button",
              class: "primary",
              onclick: () => {
                session.setDraft(point.service, { parameters: point.parameters });
                navigate("tables", source.id, point.service);
              },
            },
            `Run point ${which}`,
          ),
          Object.keys(around).length
            ? element(
                "button",
                {
                  type: "button",
                  onclick: () => {
                    session.setDraft("compare", {
                      service: point.service,
                      parameters: point.parameters,
                      vary: around,
                    });
                    navigate("tables", source.id, "compare");
                  },
                },
                `Refine around point ${which}`,
              )
            : null,
        )
      : element("p", { class: "quiet" }, "Upload the table again in this tab to run it."),
  ];
}
