// Name, label and notes of a job or a table: shown below the heading, and changed in a form.

import * as api from "./api.js";
import { alarm, element, newId, shown, whileDisabled } from "./dom.js";
import { form, point } from "./form.js";
import { inForm } from "./problem_words.js";
import { routeHref } from "./router.js";

const EMPTY = { name: "", label: "", notes: "" };

/** Returns the address of the jobs with this name (a part of it), label and state; empty ones are any. */
export function jobsHref(filter) {
  const query = new URLSearchParams(Object.entries(filter).filter(([, value]) => value));
  return query.size ? routeHref("jobs", "find", query.toString()) : "#/jobs";
}

/** Creates a link to all jobs with a label. */
export const labelLink = (label) => element("a", { class: "label", href: jobsHref({ label }) }, shown(label));

/**
 * Creates label and notes of a resource, and the form that changes these and its name. `path` is the resource;
 * `renamed(resource)` is called after a change.
 */
export function annotationsOf(path, first, document, renamed = () => {}) {
  const said = element("div", { "aria-live": "polite" });
  const about = element("div", { class: "annotations" });
  const schema = document.components.schemas.AnnotationChange;
  const inputs = form(schema, { document, fields: [] }, { allInTheOpen: true });
  const show = ({ name, label, notes }) => {
    inputs.set({ ...EMPTY, name, label, notes });
    about.replaceChildren(
      ...[
        label ? element("p", {}, "Label: ", labelLink(label)) : null,
        notes ? element("p", { class: "notes", dir: "auto" }, ...notes.split("\n").flatMap(lineOf)) : null,
      ].filter(Boolean),
    );
  };
  const save = element("button", {}, "Save");
  const submit = async (event) => {
    event.preventDefault();
    point(inputs.parts, []);
    said.replaceChildren(element("p", { class: "quiet" }, "Saving …"));
    await whileDisabled(save, store);
  };
  const store = async () => {
    try {
      const changed = await api.patch(path, { ...EMPTY, ...inputs.value() });
      show(changed);
      renamed(changed);
      said.replaceChildren(element("p", { class: "quiet" }, "Saved."));
    } catch (error) {
      point(inputs.parts, error.errors ?? []);
      said.replaceChildren(alarm(inForm(error, inputs.parts)));
    }
  };
  show(first);
  const edit = element(
    "details",
    { class: "more unprinted" },
    element("summary", {}, "Name, label and notes"),
    element(
      "form",
      { onsubmit: submit, novalidate: true, "aria-label": "Name, label and notes" },
      inputs.node,
      element("div", { class: "actions" }, save),
    ),
    said,
  );
  return element("div", {}, about, edit);
}

/** Creates a form that finds resources by a part of their name and by their label; `found` gets both. */
export function searchOf(words, { name, label }, found) {
  const input = (given) =>
    element("input", { id: newId("find"), type: "search", value: given, maxlength: 120, autocomplete: "off" });
  const [named, labelled] = [input(name), input(label)];
  return element(
    "form",
    {
      class: "inline",
      role: "search",
      "aria-label": words,
      onsubmit: (event) => {
        event.preventDefault();
        found({ name: named.value.trim(), label: labelled.value.trim() });
      },
    },
    element("label", { for: named.id }, "Name contains"),
    named,
    element("label", { for: labelled.id }, "Label is"),
    labelled,
    element("button", {}, "Find"),
  );
}

const lineOf = (line, at) => (at ? [element("br"), line && shown(line)] : [line && shown(line)]);
