// View of a table: fields with types and roles, and the services to run on it.

import * as api from "../api.js";
import { annotationsOf } from "../annotations.js";
import { deletion } from "../deletion.js";
import { glossed } from "../glossary.js";
import { fieldsSection, headerDoubt, numbersDoubt } from "./fields.js";
import { element, facts, named, shown } from "../dom.js";
import { releasesOf } from "./ledger.js";
import { firstRows } from "../rows_table.js";
import { navigateUnlessLeft, routeHref } from "../router.js";
import { guess } from "../roles.js";
import * as session from "../session.js";
import { counted, moment, number } from "../format.js";

const FIRST_ROWS = 10;

const PATIENCE = 2000; // milliseconds

const profiles = new Map();

/** Returns the profile of a table; null if it is not allowed, or if the user goes on while no worker is free. */
function profileOf(id, path, signal) {
  if (profiles.has(id)) return profiles.get(id);
  const counted = api.get(`${path}/profile?rows=${FIRST_ROWS}`, signal).catch(() => null);
  counted.then((profile) => profile && profiles.set(id, profile));
  return new Promise((resolve) => {
    const notice = element(
      "div",
      { class: "waiting", role: "status" },
      element("p", {}, "The values are counted when a worker is free."),
      element("button", { type: "button", onclick: () => end(null) }, "Go on without the figures"),
    );
    const timer = setTimeout(() => document.querySelector("main").before(notice), PATIENCE);
    const end = (profile) => {
      clearTimeout(timer);
      notice.remove();
      resolve(profile);
    };
    counted.then(end); // also when the view is left, which aborts the request
  });
}

/** Returns {buffer, profile, fields, name}; fields have profile, role and guess. Throws Problem. */
export async function loadTable(id, signal) {
  const path = `v1/buffers/${encodeURIComponent(id)}`;
  const buffer = await api.get(path).catch((error) => {
    if (error.status === 404) session.forget(id); // deleted in another tab, or expired
    throw error;
  });
  session.remember(buffer, buffer.name);
  const profile = await profileOf(id, path, signal);
  const given = session.roles(id);
  const fields = buffer.fields.map((field, index) => {
    const profiled = profile?.fields[index];
    const found = profiled ? { ...profiled, rows: profile.rows_read } : null;
    const guessed = guess(field, found);
    return { ...field, ...found, guessed, role: given.get(field.name) ?? guessed.role };
  });
  return { buffer, profile, fields, name: session.tables().find((one) => one.id === id)?.name ?? id };
}

export async function view([id], signal) {
  const [table, services, document] = await Promise.all([loadTable(id, signal), api.listServices(), api.contract()]);
  const { buffer, fields, profile, name } = table;
  const released = await releasesOf(buffer.digest);
  const title = element("h1", { tabindex: "-1" }, named(name));
  const rename = (changed) => {
    session.remember(changed, changed.name ?? id);
    title.replaceChildren(named(changed.name ?? id));
  };
  return {
    help: "console#the-table-before-it-is-swapped",
    title: shown(name),
    nodes: [
      title,
      annotationsOf(`v1/buffers/${encodeURIComponent(id)}`, buffer, document, rename),
      facts([
        ["Rows", number(buffer.row_count)],
        ["Fields", number(fields.length)],
        ["Kept until", moment(buffer.expires_at)],
        ["Released", released],
        ["Digest", element("code", {}, buffer.digest)],
        ["Id", element("code", {}, id)],
      ]),
      element("p", { class: "unprinted" }, "Correct the roles of the fields, then ", toServices(), "."),
      headerDoubt(fields),
      numbersDoubt(fields, profile?.first_rows ?? []),
      profile?.first_rows.length
        ? element(
            "section",
            { "aria-labelledby": "first-rows" },
            element("h2", { id: "first-rows" }, "First rows"),
            ...firstRows(profile.fields, profile.first_rows),
          )
        : null,
      fieldsSection(table),
      element(
        "section",
        { "aria-labelledby": "services" },
        element("h2", { id: "services", tabindex: "-1" }, "What should be done?"),
        element(
          "p",
          {},
          "Each service moves values in its own way. ",
          element("a", { href: routeHref("tables", id, "compare") }, "Compare several by risk and utility"),
          " if you are not sure.",
        ),
        element(
          "ul",
          { class: "services" },
          services.map((service) => serviceOf(id, service)),
        ),
      ),
      removal(id),
    ].filter(Boolean),
  };
}

/** Creates a link over the fields, which may be many. The address after # selects the view, so that it cannot lead there. */
function toServices() {
  const go = (event) => {
    event.preventDefault();
    const heading = document.querySelector("#services");
    heading.scrollIntoView();
    heading.focus();
  };
  return element("a", { href: location.hash, onclick: go }, "choose what should be done");
}

function serviceOf(id, service) {
  return element(
    "li",
    {},
    element(
      "h3",
      {},
      element(
        "a",
        { href: routeHref("tables", id, service.identifier) },
        service.title,
        " ",
        element("span", { class: "identifier" }, service.identifier),
      ),
    ),
    element("p", {}, service.summary),
    about(service, "h4"),
  );
}

/** Creates a link back to the table of a view. */
export function trail({ buffer, name }) {
  return element(
    "p",
    { class: "kind" },
    element("a", { href: routeHref("tables", buffer.id) }, named(name)),
    ` · ${counted(buffer.row_count, "row")}`,
  );
}

/** Creates collapsed sections with the guarantees and limits of a service, below the given heading level. */
export function about(service, heading) {
  const listing = (words, items) =>
    items.length
      ? [
          element(heading, {}, words),
          element(
            "ul",
            {},
            items.map((item) => element("li", {}, ...glossed(item))),
          ),
        ]
      : [];
  return element(
    "details",
    { class: "guarantees" },
    element(
      "summary",
      {},
      "What it keeps, what it does not protect against",
      element("span", { class: "hidden-words" }, `: ${service.identifier}`),
    ),
    ...listing("Keeps and guarantees", service.guarantees),
    ...listing("Changes", service.changes),
    ...listing("Does not protect against", service.limits),
    ...listing("What repeated releases reveal", service.repeated_releases),
    ...listing("When to choose another", service.instead),
    element(
      "p",
      {},
      element(
        "a",
        { href: `help/services/${encodeURIComponent(service.identifier)}` },
        `Help: ${service.title} in full`,
      ),
    ),
  );
}

function removal(id) {
  return element(
    "section",
    { class: "panel", "aria-labelledby": "removal" },
    element("h2", { id: "removal" }, "Done with it?"),
    element(
      "p",
      {},
      "Delete the table from the service now, instead of at its expiry. Jobs that ran on it keep their results.",
    ),
    deletion("Delete this table", "The table is deleted from the service for good.", async () => {
      const proceed = navigateUnlessLeft();
      await api.send("DELETE", `v1/buffers/${encodeURIComponent(id)}`);
      session.forget(id);
      proceed();
    }),
  );
}
