// View of all jobs, newest first.

import * as api from "../api.js";
import { alarm, element, table } from "../dom.js";
import { routeHref } from "../router.js";
import { moment, number } from "../format.js";

const PAGE = 20;
const KINDS = { measures: "Measures of a table", frontier: "Comparison of services" };
const STATES = ["queued", "running", "succeeded", "failed", "cancelled"];

/** Badge of a state: a word and a symbol, so that colour is never the only difference. */
export const badge = (state) => element("span", { class: `state ${state}` }, state);

export const nameOf = (job, services) =>
  KINDS[job.kind] ?? services.find((service) => service.identifier === job.service)?.title ?? job.service;

export async function view([state]) {
  const services = await api.listServices();
  const holder = element("div", {});
  const more = element("button", { type: "button", hidden: true }, "Older jobs");
  const jobs = [];
  let next = null;
  const load = async () => {
    const query = new URLSearchParams({ page_size: PAGE });
    if (STATES.includes(state)) query.set("state", state);
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
          nameOf(job, services),
          " ",
          element(
            "small",
            {},
            job.kind === "swap" ? job.service : "",
            ` ${moment(job.created_at)}`,
            job.rerun_of ? ", a rerun" : "",
          ),
        ),
        badge(job.state),
        number(job.row_count),
      ],
    }));
    const none = [element("p", {}, "None yet. ", element("a", { href: "#/" }, "Protect a table"), ".")];
    holder.replaceChildren(...(rows.length ? table("Newest first", ["Job", "State", "Rows"], rows) : none));
  };
  const said = element("div", {});
  more.addEventListener("click", async () => {
    more.disabled = true; // a second click would load the same page again
    said.replaceChildren();
    await load().catch((error) => said.replaceChildren(alarm(error)));
    more.disabled = false;
  });
  await load();
  return {
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
                  href: each ? routeHref("jobs", "state", each) : "#/jobs",
                  "aria-current": each === (state ?? "") ? "page" : null,
                },
                each || "all",
              ),
            ),
          ),
        ),
      ),
      holder,
      said,
      more,
    ],
  };
}
