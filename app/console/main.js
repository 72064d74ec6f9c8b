// The console: which view belongs to which address, and what stands around every view.

import { alarm, element } from "./dom.js";
import { askForKey } from "./key.js";
import { here } from "./places.js";
import * as session from "./session.js";
import { view as compare } from "./compare.js";
import { view as job } from "./job.js";
import { view as jobs } from "./jobs.js";
import { view as run } from "./run.js";
import { view as table } from "./table.js";
import { view as tables } from "./tables.js";

const main = document.querySelector("main");
const keyButton = document.querySelector("#key");

let leave = new AbortController();

/** The view of an address, and the part of the console that it belongs to. */
function viewOf([part, id, more, ...rest]) {
  if (part === undefined) return [tables, [], "tables"];
  if (part === "tables" && id && !more) return [table, [id], "tables"];
  if (part === "tables" && more === "compare" && !rest.length) return [compare, [id], "tables"];
  if (part === "tables" && more && !rest.length) return [run, [id, more], "tables"];
  if (part === "jobs" && !id) return [jobs, [], "jobs"];
  if (part === "jobs" && id === "state") return [jobs, [more], "jobs"];
  if (part === "jobs" && !more) return [job, [id], "jobs"];
  return [nowhere, [], ""];
}

const nowhere = async () => ({
  title: "Nothing here",
  nodes: [
    element("h1", { tabindex: "-1" }, "There is nothing here"),
    element("p", {}, element("a", { href: "#/" }, "To the tables")),
  ],
});

async function show() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const [view, parts, part] = viewOf(here());
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.dataset.part === part) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  const shown = await view(parts, signal).catch((error) => ({
    title: "Not shown",
    nodes: [element("h1", { tabindex: "-1" }, "This cannot be shown"), alarm(error)],
  }));
  if (signal.aborted) return; // one has gone elsewhere meanwhile
  main.replaceChildren(...shown.nodes);
  main.removeAttribute("aria-busy");
  document.title = `${shown.title} · Rowveil`;
  scrollTo(0, 0);
  main.querySelector("h1").focus({ preventScroll: true });
}

function tellKey() {
  keyButton.lastElementChild.textContent = session.key() ? ": set" : "";
}

keyButton.addEventListener("click", () => askForKey());
document.addEventListener("keychanged", tellKey);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address after # says which view it is
  main.querySelector("h1")?.focus();
});
addEventListener("hashchange", show);
tellKey();
show();
