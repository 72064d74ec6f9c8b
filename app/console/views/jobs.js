// View of all jobs, newest first.

import * as api from "../api.js";
import { jobsHref, labelLink, searchOf } from "../annotations.js";
import { alarm, element, named, table, whileDisabled } from "../dom.js";
import { routeHref } from "../router.js";
import { moment, number } from "../format.js";

const PAGE = 20;
const KINDS = { measures: "Measures of a table", frontier: "Comparison of services", attacks: "Attacks on a release" };
const STATES = ["queued", "running", "succeeded", "failed", "cancelled"];

/** Badge of a state: a word and a symbol, so that colour is never the only difference. */
export const badge = (state) => element("span", { class: `state ${state}` }, state);

export const nameOf = (job, services) =>
  KINDS[job.kind] ?? services.find((service) => service.identifier === job.service)?.title ?? job.service;

/** Name that a person gave to the job, else the title of its service. */
export const titleOf = (job, services) => job.name ?? nameOf(job, services);

/** `given`: the filter as a query, with `state`, `name` (a part of it) and `label`. */
export async function view([given]) {
  const filter = Object.fromEntries(new URLSearchParams(given ?? ""));
  const { state } = filter;
  const services = await api.listServices();
  const holder = element("div", {});
  const more = element("button", { type: "button", hidden: true }, "Older jobs");
  const jobs = [];
  let next = null;
  const load = async () => {
    const query = new URLSearchParams({ page_size: PAGE });
    if (STATES.includes(state)) query.set("state", state);
    for (const each of ["name", "label"]) if (filter[each]) query.set(each, filter[each]);
    if (next) query.set("page_token", next);
    const page = await api.get(`v1/jobs?${query}`);
    jobs.push(...page.jobs);
    next = page.next_page_token;
    more.hidden = !next;
    const rows = jobs.map((job) => ({
      cells: [
        element(
          "a",
          { href: routeHref("jobs", job.id) },
          job.name ? named(job.name) : nameOf(job, services),
          " ",
          element(
            "small",
            {},
            job.kind === "swap" ? job.service : job.name ? nameOf(job, services) : "",
            ` ${moment(job.created_at)}`,
            job.rerun_of ? ", a rerun" : "",
          ),
        ),
        job.label ? labelLink(job.label) : "",
        badge(job.state),
        number(job.row_count),
      ],
    }));
    const all = element("a", { href: "#/jobs" }, "all jobs");
    const filtered =
      filter.name || filter.label
        ? "No job has that name and label. See "
        : STATES.includes(state) && `No job is in the state “${state}”. See `;
    const none = filtered
      ? [element("p", {}, filtered, all, ".")]
      : [element("p", {}, "None yet. ", element("a", { href: "#/" }, "Protect a table"), ".")];
    const heads = ["Job", "Label", "State", "Rows"];
    holder.replaceChildren(...(rows.length ? table("Newest first", heads, rows) : none));
  };
  const said = element("div", {});
  more.addEventListener("click", async () => {
    const before = jobs.length;
    said.replaceChildren();
    // disabled, because a second click would load the same page again
    await whileDisabled(more, () => load().catch((error) => said.replaceChildren(alarm(error))));
    if (jobs.length > before) holder.querySelectorAll("tbody th a")[before].focus();
  });
  await load();
  return {
    help: "console",
    title: "Jobs",
    nodes: [
      element("h1", { tabindex: "-1" }, "Jobs"),
      element(
        "nav",
        { "aria-label": "States", class: "filter" },
        element(
          "ul",
          {},
          ["", ...STATES].map((each) =>
            element(
              "li",
              {},
              element(
                "a",
                {
                  href: jobsHref({ ...filter, state: each }),
                  "aria-current": each === (state ?? "") ? "page" : null,
                },
                each || "all",
              ),
            ),
          ),
        ),
      ),
      searchOf("Jobs", filter, (wanted) => {
        location.hash = jobsHref({ ...filter, ...wanted });
      }),
      holder,
      said,
      more,
    ],
  };
}
