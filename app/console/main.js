// Entry point: selects the view for the current route, and updates the page around it.

import { alarm, element, newId } from "./dom.js";
import { forgetExplained } from "./glossary.js";
import { askForKey } from "./key_dialog.js";
import { currentRoute } from "./router.js";
import * as session from "./session.js";
import { learn } from "./words.js";
import { view as attack } from "./views/attack.js";
import { view as pair } from "./views/pair.js";
import { view as compare } from "./views/compare.js";
import { view as ledger } from "./views/ledger.js";
import { view as job } from "./views/job.js";
import { view as jobs } from "./views/jobs.js";
import { view as run } from "./views/run.js";
import { view as table } from "./views/table.js";
import { view as tables } from "./views/tables.js";

const main = document.querySelector("main");
const keyButton = document.querySelector("#key");
const helpLink = document.querySelector("#help");

/** Words of the glossary and the measures; without them the console works, and explains no term. */
const words = fetch("help/words.json")
  .then((response) => (response.ok ? response.json() : null))
  .then((found) => found && learn(found))
  .catch(() => {});

let leave = new AbortController();

/** Returns the view of a route, its arguments, and the active navigation entry. */
function viewOf([part, id, more, ...rest]) {
  if (part === undefined) return [tables, [], "tables"];
  if (part === "tables" && id && !more) return [table, [id], "tables"];
  if (part === "tables" && more === "compare" && !rest.length) return [compare, [id], "tables"];
  if (part === "tables" && more && !rest.length) return [run, [id, more], "tables"];
  if (part === "ledger" && !more) return [ledger, id ? [id] : [], "ledger"];
  if (part === "jobs" && !id) return [jobs, [], "jobs"];
  if (part === "jobs" && id === "state") return [jobs, [`state=${more}`], "jobs"];
  if (part === "jobs" && id === "find") return [jobs, [more], "jobs"];
  if (part === "jobs" && !more) return [job, [id], "jobs"];
  if (part === "jobs" && more === "attack" && !rest.length) return [attack, [id], "jobs"];
  if (part === "jobs" && more === "pair" && rest.length === 1) return [pair, [id, rest[0]], "jobs"];
  return [nowhere, [], ""];
}

const nowhere = async () => ({
  title: "Nothing here",
  nodes: [
    element("h1", { tabindex: "-1" }, "There is nothing here"),
    element("p", {}, element("a", { href: "#/" }, "To the tables")),
  ],
});

/** Creates the view for an error: what is wrong, and the ways on. */
const failure = (error) => ({
  title: "Not shown",
  nodes: [
    element("h1", { tabindex: "-1" }, "This cannot be shown"),
    alarm(error),
    error.status === 404 ? element("p", {}, "It was deleted, or it has expired, or its address is wrong.") : null,
    element(
      "div",
      { class: "actions" },
      element("button", { type: "button", onclick: show }, "Try again"),
      element("a", { href: "#/" }, "To the tables"),
      element("a", { href: "#/jobs" }, "To the jobs"),
    ),
  ].filter(Boolean),
});

history.scrollRestoration = "manual"; // a view is shown later than the browser would scroll
const places = new Map(); // visit -> how far its view was scrolled
let visit = 0;

/** Returns how far the view was scrolled when this entry of the browser's history was left; 0 for a new one. */
function returnedTo() {
  if (!main.hasAttribute("aria-busy")) places.set(visit, scrollY); // of the view that is left
  if (!history.state?.visit) history.replaceState({ visit: newId(`visit-${performance.timeOrigin}`) }, "");
  visit = history.state.visit;
  return places.get(visit) ?? 0;
}

async function show() {
  const place = returnedTo();
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const [view, parts, part] = viewOf(currentRoute());
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.dataset.part === part) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  await words;
  forgetExplained();
  const shown = await view(parts, signal).catch(failure);
  if (signal.aborted) return; // the user has navigated away in the meantime
  main.replaceChildren(...shown.nodes);
  main.removeAttribute("aria-busy");
  helpLink.href = `help/${shown.help ?? ""}`;
  document.title = `${shown.title} · Rowveil`;
  scrollTo(0, place);
  main.querySelector("h1").focus({ preventScroll: true });
}

function showKeyState() {
  keyButton.lastElementChild.textContent = session.key() ? ": set" : "";
}

keyButton.addEventListener("click", async () => {
  if (await askForKey()) await show(); // the view may have been refused to the key before
});
document.addEventListener("keychanged", showKeyState);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address after # selects the view
  main.querySelector("h1")?.focus();
});
document.querySelector("header nav").addEventListener("click", ({ target }) => {
  const { hash } = target.closest("a") ?? {};
  if (hash && hash === location.hash) show(); // the address stays, so that no event follows
});
for (const name of ["dragover", "drop"])
  addEventListener(name, (event) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); // the browser would leave the page for the file
  });
addEventListener("hashchange", show);
showKeyState();
show();
