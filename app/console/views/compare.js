// View to compare services and parameters: builds a frontier request from their forms.

import * as api from "../api.js";
import { element, newId } from "../dom.js";
import { form } from "../form.js";
import { ROLE_OPTIONS, suggesting, suggestion } from "../roles.js";
import * as session from "../session.js";
import { keeping, requestForm, withoutSeed } from "./run.js";
import { loadTable, trail } from "./table.js";
import { control } from "../schema_controls.js";
import { counted } from "../format.js";

const OWN = ["source", "services", "key_fields", "validate_only", "webhook"];

export async function view([id], signal) {
  const [table, services, document] = await Promise.all([loadTable(id, signal), api.listServices(), api.contract()]);
  const { fields } = table;
  const suggest = (name, schema) =>
    ROLE_OPTIONS.includes(name) ? suggestion(name, schema, fields) : undefined;
  const { schema } = document.paths["/v1/frontier"].post.requestBody.content[api.JSON_TYPE];
  const options = form(schema, { document, fields, suggest }, { without: OWN, allInTheOpen: true });
  const varied = document.components.schemas.Variation.properties.vary;
  const variations = services.map((service) => variation(service, fields, varied, document));
  const draft = session.takeDraft("compare");
  if (draft) variations[services.findIndex((each) => each.identifier === draft.service)]?.set(draft);
  const chosen = () => variations.filter((each) => each.chosen());
  const place = `${id}.compare`;
  const kept = draft ? null : session.entered(place);
  if (kept) {
    options.set(kept.options, kept.suggested);
    for (const one of kept.services)
      variations[services.findIndex((each) => each.identifier === one.service)]?.set(one);
  }
  const keep = keeping(place, () => ({
    services: chosen().map((each) => ({ ...each.value(), suggested: each.suggestions() })),
    suggested: options.suggestions(),
    options: withoutSeed(options.value()),
  }));
  if (draft) keep(); // a reload would bring back what was entered before
  const call = () => {
    if (!chosen().length)
      throw new api.Problem(0, { title: "Nothing to compare", detail: "tick the services to compare" });
    return {
      source: { buffer: id },
      services: chosen().map((each) => each.value()),
      ...options.value(),
    };
  };
  const combinations = () => chosen().reduce((sum, each) => sum + each.combinations(), 0);
  // pointers count the chosen services; map each to its index among all services of the form
  const parts = {
    ...options.parts,
    get services() {
      return { parts: Object.fromEntries(chosen().map((each, index) => [index, each])) };
    },
  };
  return {
    help: "choosing",
    title: "Compare services",
    nodes: [
      trail(table),
      element("h1", { tabindex: "-1" }, "Compare services"),
      element(
        "p",
        { class: "lead" },
        "Every combination is run and measured. The frontier has the combinations that no other one with the same protected fields beats in both risk and utility: choose from it.",
      ),
      requestForm(
        "v1/frontier",
        call,
        parts,
        [
          element(
            "section",
            { "aria-labelledby": "choose" },
            element("h2", { id: "choose" }, "Services to compare"),
            variations.map((each) => each.node),
          ),
          element(
            "details",
            { class: "options" },
            element("summary", {}, "Which axis matters, how risk and utility are measured, and other options"),
            options.node,
          ),
        ],
        () => [
          element("h2", {}, "What would be compared"),
          element(
            "p",
            { class: "good" },
            `${counted(combinations(), "combination")}; their parameters fit this table's fields.`,
          ),
        ],
        { keep },
      ),
    ],
  };
}

/** Creates a checkbox for a service, with its fixed and its varied parameters. */
function variation(service, fields, varied, document) {
  let inside = null;
  const holder = element("div", { class: "variation", hidden: true });
  const tick = element("input", {
    type: "checkbox",
    id: newId("service"),
    onchange: () => open(),
  });
  const open = () => {
    holder.hidden = !tick.checked;
    if (!tick.checked || inside) return;
    inside = inner(service, fields, varied, document);
    holder.append(inside.parameters.node, inside.vary.node);
  };
  const node = element(
    "div",
    { class: "choice" },
    element(
      "div",
      { class: "tick" },
      tick,
      element(
        "label",
        { for: tick.id },
        `${service.title} `,
        element("span", { class: "identifier" }, service.identifier),
      ),
    ),
    element("p", { class: "about" }, service.summary),
    holder,
  );
  return {
    node,
    title: service.title,
    set: ({ parameters, vary, suggested }) => {
      tick.checked = true;
      open();
      inside.parameters.set(parameters, suggested);
      inside.vary.set(vary);
    },
    get parts() {
      return inside ?? {};
    },
    suggestions: () => inside.parameters.suggestions(),
    chosen: () => tick.checked && inside !== null, // a click is heard before the change that opens it
    combinations: () =>
      Object.values(inside.vary.value() ?? {}).reduce(
        (product, values) => product * (values?.length ?? 1),
        1,
      ),
    value: () => {
      const vary = inside.vary.value();
      const parameters = Object.entries(inside.parameters.value()).filter(
        ([name]) => !(name in (vary ?? {})),
      );
      return {
        service: service.identifier,
        parameters: Object.fromEntries(parameters),
        ...(vary ? { vary } : {}),
      };
    },
  };
}

function inner(service, fields, varied, document) {
  const schema = service.parameters_schema;
  const names = Object.keys(schema.properties);
  return {
    parameters: form(schema, { document: schema, fields, suggest: suggesting(fields, service) }),
    vary: control("vary", varied, false, { document, fields, keys: { vary: names } }),
  };
}
