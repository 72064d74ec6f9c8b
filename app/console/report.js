// The report: the choices it holds, as tables to go on from, and the service's own page with its pictures.

import * as api from "./api.js";
import { alarm, element, named, shown, table } from "./dom.js";
import { go } from "./places.js";
import * as session from "./session.js";
import { counted, number, written } from "./words.js";

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

/** The runs of which one was kept. */
function candidates({ rank_by: names, chosen, table: runs }) {
  return table(
    `${counted(runs.length, "candidate")}; the one with the least mean of ranks was kept`,
    ["Candidate", ...names, "Rank", "Choice"],
    runs.map((run) => ({
      marked: run.index === chosen,
      cells: [
        String(run.index + 1),
        ...names.map((name) => figure(run.values[name])),
        figure(run.rank),
        run.index === chosen ? "kept" : "",
      ],
    })),
  );
}

/** The combinations, the frontier first, each to be taken on. */
function frontier({ risk, utility, goals, points }, job) {
  const source = session.tables().find((one) => one.digest === job.source.digest);
  const better = (goal) => (goal === "low" ? "less is better" : "more is better");
  const order = (point) => (point.error ? 2 : point.dominated ? 1 : 0);
  const sorted = [...points].sort((one, other) => order(one) - order(other) || one.risk - other.risk);
  const take = (point) =>
    element(
      "button",
      {
        type: "button",
        onclick: () => {
          session.setDraft(point.service, point.parameters);
          go("tables", source.id, point.service);
        },
      },
      "Use",
      element("span", { class: "hidden-words" }, ` ${point.service} with these parameters`),
    );
  return element(
    "div",
    {},
    element(
      "p",
      {},
      "Combinations that no other one beats come first, in bold.",
      source ? "" : " Upload the table again in this tab to take one of them on.",
    ),
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
 * The page in a frame that runs nothing. It is of this origin, so that the frame can be made as high as
 * the page and the two scroll as one.
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
