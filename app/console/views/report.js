// Report of a job: tables of candidates or frontier points, and the service's HTML report page.

import * as api from "../api.js";
import { alarm, element, named, shown, table } from "../dom.js";
import { navigate } from "../router.js";
import * as session from "../session.js";
import { counted, number, written } from "../format.js";

export async function reportOf(job) {
  const path = `v1/jobs/${encodeURIComponent(job.id)}/report`;
  const inside = [element("h2", { id: "report" }, "Report")];
  try {
    const [report, page] = await Promise.all([
      api.get(path),
      api.send("GET", path, { headers: { accept: "text/html" } }).then((answer) => answer.text()),
    ]);
    if (report.candidates) inside.push(candidates(report.candidates));
    if (report.frontier) inside.push(frontier(report.frontier, job));
    inside.push(framed(page));
  } catch (error) {
    if (error.status !== 404 && error.status !== 409) inside.push(alarm(error));
    else inside.push(element("p", { class: "quiet" }, `There is none: ${error.message}`));
  }
  return element("section", { "aria-labelledby": "report" }, inside);
}

const figure = (value) => (value === undefined || value === null ? "–" : number(value));

const quiet = (sentences) => (sentences.length ? [element("p", { class: "quiet" }, sentences.join(" "))] : []);

/** Lists the figures that do not rank, each with its reason. */
const unranked = (reasons) =>
  Object.entries(reasons ?? {}).map(([name, reason]) => `${shown(name)} ranks nothing: ${shown(reason)}.`);

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

/** Creates the table of candidate runs. */
function candidates({ rank_by: names, chosen, table: runs, left_out: reasons, verdict }) {
  return element(
    "div",
    {},
    verdict ? element("p", { class: "warning" }, shown(verdict)) : null,
    quiet(unranked(reasons)),
    table(
      names.length
        ? `${counted(runs.length, "candidate")}; the one with the least mean of ranks was kept`
        : `${counted(runs.length, "candidate")}; the first one was kept`,
      ["Candidate", ...names, "Rank", "Choice"],
      runs.map((run) => ({
        marked: run.index === chosen,
        cells: [
          String(run.index + 1),
          ...names.map((name) => figure(run.values[name])),
          figure(run.rank),
          [run.index === chosen ? "kept" : "", ...faults(run)].filter(Boolean).join("; "),
        ],
      })),
    ),
  );
}

/** Creates the table of combinations, frontier first, each with a button to use it. */
function frontier({ risk, utility, goals, points, axes, passed_over: passed, verdict }, job) {
  const source = session.tables().find((one) => one.digest === job.source.digest);
  const better = (goal) => ({ low: "less is better", high: "more is better" })[goal] ?? "";
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
          session.setDraft(point.service, point.parameters);
          navigate("tables", source.id, point.service);
        },
      },
      "Use",
      element("span", { class: "hidden-words" }, ` ${point.service} with these parameters`),
    );
  return element(
    "div",
    {},
    verdict ? element("p", { class: none ? "warning" : "good" }, shown(verdict)) : null,
    element(
      "p",
      {},
      none ? "" : "Combinations that no other one beats come first, in bold.",
      source ? "" : " Upload the table again in this tab to run one of them.",
    ),
    quiet([...constant, ...chance, ...unranked(passed)]),
    table(
      "All combinations",
      [
        "Service",
        "Parameters",
        `Risk: ${risk} (${better(goals.risk)})`,
        `Utility: ${utility} (${better(goals.utility)})`,
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
                element("li", {}, element("code", {}, name), " ", named(written(value))),
              ),
            ),
            point.error ? element("p", { class: "fault" }, shown(point.error)) : null,
            ...faults(point).map((fault) => element("p", { class: "fault" }, fault)),
          ],
          figure(point.risk),
          figure(point.utility),
          source && !point.error ? take(point) : "",
        ],
      })),
    ),
  );
}

/**
 * Shows the page in a sandboxed frame without scripts. It has this origin, so that the frame can be as high
 * as its content, and the two scroll together.
 */
function framed(page) {
  const frame = element("iframe", { class: "report", title: "Report", sandbox: "allow-same-origin" });
  const address = URL.createObjectURL(new Blob([page], { type: "text/html;charset=utf-8" }));
  frame.addEventListener("load", () => {
    URL.revokeObjectURL(address);
    const { documentElement: inner, body } = frame.contentDocument;
    const fit = () => {
      frame.style.height = `${body.offsetHeight}px`;
    };
    new ResizeObserver(fit).observe(body);
    inner.style.overflow = "hidden";
    fit();
  });
  frame.src = address;
  return frame;
}
