// View of the disclosure ledger: the releases of one source, or of all, oldest first.

import * as api from "../api.js";
import { alarm, element, facts, named, shown, table, whileDisabled } from "../dom.js";
import { routeHref } from "../router.js";
import * as session from "../session.js";
import { counted, moment, number, percent } from "../format.js";

const PAGE = 200;

/** Returns a page of the ledger; `source` is a digest, or undefined for all sources. */
const pageOf = (source, token) => {
  const given = Object.entries({ source, page_size: PAGE, page_token: token }).filter(([, value]) => value);
  return api.get(`v1/ledger?${new URLSearchParams(given)}`);
};

export const ledgerHref = (digest) => routeHref("ledger", digest);

/** Creates a link to the releases of a source with their number; null if the ledger is refused. */
export async function releasesOf(digest) {
  const page = await pageOf(digest).catch(() => null);
  if (!page) return null;
  const { releases, next_page_token: more } = page;
  if (!releases.length) return "not yet";
  return element(
    "a",
    { href: ledgerHref(digest) },
    more ? `more than ${counted(PAGE, "time")}` : counted(releases.length, "time"),
  );
}

/** Returns a table's name if this tab knows it, else the beginning of its digest. */
function sourceName(digest) {
  const known = session.tables().find((one) => one.digest === digest);
  return known ? named(known.name) : element("code", {}, `${digest.slice(0, 18)}…`);
}

export async function view([source]) {
  const holder = element("div", {});
  const said = element("div", {});
  const more = element("button", { type: "button" }, "Later releases");
  const releases = [];
  let next = null;
  const load = async () => {
    const page = await pageOf(source, next);
    releases.push(...page.releases);
    next = page.next_page_token;
    more.hidden = !next;
    holder.replaceChildren(...(releases.length ? shownReleases(releases, source, !next) : [none(source)]));
  };
  more.addEventListener("click", async () => {
    const before = releases.length;
    said.replaceChildren();
    await whileDisabled(more, () => load().catch((error) => said.replaceChildren(alarm(error))));
    if (releases.length > before) holder.querySelectorAll("tbody th a")[before].focus();
  });
  await load();
  return {
    help: "ledger#the-ledger",
    title: "Releases",
    nodes: [
      source ? element("p", { class: "kind" }, element("a", { href: "#/ledger" }, "All releases")) : null,
      element("h1", { tabindex: "-1" }, source ? ["Releases of ", sourceName(source)] : "Releases"),
      element(
        "p",
        {},
        "Your releases and the releases of your project. Each run of a service that succeeded is recorded here, and stays when its job is deleted.",
      ),
      holder,
      said,
      more,
    ].filter(Boolean),
  };
}

const none = (source) =>
  source
    ? element("p", {}, "This table was not released yet.")
    : element("p", {}, "Nothing was released yet. ", element("a", { href: "#/" }, "Protect a table"), ".");

/** Creates the sum of a source, if all its releases are read, and the table of the releases. */
function shownReleases(releases, source, isWhole) {
  const head = ["Release", ...(source ? [] : ["Source"]), "Released by", "Epsilon", "All releases together", "Measured risk", "Reason"];
  const rows = releases.map((entry) => ({
    cells: [
      release(entry),
      ...(source ? [] : [element("a", { href: ledgerHref(entry.source_digest) }, sourceName(entry.source_digest))]),
      [named(entry.owner), entry.project ? [", project ", named(entry.project)] : []],
      entry.epsilon?.epsilon === undefined ? (entry.epsilon ? "none" : "–") : number(entry.epsilon.epsilon),
      together(entry.epsilon),
      risk(entry.risk),
      entry.reason ? named(entry.reason) : "–",
    ],
  }));
  return [...(source && isWhole ? [sum(releases, source)] : []), ...table("Oldest first", head, rows)];
}

/** Creates the first cell of a release: its job, and how the source was recognised. */
function release({ job, service, released_at: at, row_count: rows, match }) {
  const recognised = { digest: ", released before", fields: ", recognised by its rows or fields" }[match] ?? "";
  return [
    element("a", { href: routeHref("jobs", job) }, `${service}, ${moment(at)}`),
    element("br"),
    element("small", {}, `${counted(rows, "row")}${recognised}`),
  ];
}

/** Describes the sum of the epsilons until a release, or why there is none. */
function together(epsilon) {
  if (!epsilon) return "–";
  const { all_releases: total, fields, limits, releases } = epsilon;
  return [
    total === undefined ? "no sum" : `${number(total)} for ${counted(releases, "release")}, for an exchange of ${fields.map(shown).join(", ")}`,
    limits ? element("small", {}, `: ${shown(limits)}`) : "",
  ];
}

/** Describes the risk of all releases until one, measured on hypothetical releases. */
function risk(measured) {
  if (!measured) return "–";
  const { field, by, one_release: one, all_releases: all, releases, rows, not_measured: why } = measured;
  if (why || all === undefined) return why ? shown(why) : "–";
  return [
    named(field),
    `: ${percent(all)} of ${counted(rows, "row")} restored by ${counted(releases, "release")}, ${percent(one)} by one (${by.replaceAll("_", " ")})`,
  ];
}

/** Creates the figures of all releases of a source. The last entry that states an epsilon has the sum until then. */
function sum(releases, source) {
  const last = releases.at(-1);
  const stated = releases.some((entry) => entry.epsilon);
  const known = session.tables().find((one) => one.digest === source);
  return facts([
    ["Releases", number(releases.length)],
    ["First and last", `${moment(releases[0].released_at)} and ${moment(last.released_at)}`],
    [
      "Epsilon of all",
      last.epsilon ? together(last.epsilon) : stated ? "none: the last release has no finite epsilon" : null,
    ],
    ["Table", known ? element("a", { href: routeHref("tables", known.id) }, named(known.name)) : null],
    ["Digest", element("code", {}, source)],
  ]);
}
