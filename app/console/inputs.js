// Input controls for each kind of value in a schema.
//
// A control is {node, focus, value(), set(value), parts}: value() is undefined without an input;
// parts maps names to the controls inside it, so that an error's pointer finds its control.

import { element, errorWords, humanised, named, newId, shown } from "./dom.js";
import { numberOf, parse, stringify } from "./exact_json.js";
import { glossed } from "./glossary.js";
import { written } from "./format.js";
import { better, titled, valueWords } from "./words.js";

const FEW_CHOICES = 5;
const MOST_OF_A_LINE = 1000; // characters; longer texts have several lines

/** Creates the description of a control, and the element for its error message. */
function explained(schema) {
  const about = newId("about");
  const fault = element("p", { class: "fault", id: newId("fault"), hidden: true });
  const text = schema.description?.replaceAll("\n", " ");
  return {
    about: text ? element("p", { class: "about", id: about }, ...glossed(text)) : null,
    fault,
    describedby: text ? `${about} ${fault.id}` : fault.id,
  };
}

/** Shows an error at the control, or removes it if the message is empty. */
const faulty = (fault, input) => (message) => {
  fault.textContent = errorWords(message);
  fault.hidden = !message;
  if (message) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
};

/** Creates a control with a label, a description and one input. */
function single(name, schema, required, input, label = titled(name, schema)) {
  const { about, fault, describedby } = explained(schema);
  input.id = newId("input");
  input.setAttribute("aria-describedby", describedby);
  if (required) input.setAttribute("aria-required", "true");
  const title = element(
    "label",
    { for: input.id },
    label,
    required ? element("span", { class: "needed" }, " needed") : null,
  );
  const inside =
    input.type === "checkbox"
      ? [element("div", { class: "tick" }, input, title), about]
      : [title, about, input];
  return {
    node: element("div", { class: "control" }, ...inside, fault),
    title: titled(name, schema),
    focus: input,
    fault: faulty(fault, input),
    parts: {},
  };
}

/** Creates a fieldset with a legend, a description and its content. */
export function group(name, schema, required, inside, className = "control") {
  const { about, fault, describedby } = explained(schema);
  const title = titled(name, schema);
  const node = element(
    "fieldset",
    { class: className, "aria-describedby": describedby },
    element("legend", {}, title, required ? element("span", { class: "needed" }, " needed") : null),
    about,
    inside,
    fault,
  );
  return { node, title, focus: node, fault: faulty(fault, node), parts: {} };
}

export function yesOrNo(name, schema) {
  const input = element("input", { type: "checkbox", checked: schema.default === true });
  const description = schema.description
    ?.replace(/\btrue: /, "Ticked: ")
    .replace(/\bfalse: /, "not ticked: ");
  return {
    ...single(name, { ...schema, description }, false, input),
    value: () => (input.checked === (schema.default ?? false) ? undefined : input.checked),
    set: (value) => {
      input.checked = value === true;
    },
  };
}

export function choice(name, schema, required) {
  const values = schema.enum;
  const words = schema.words ?? valueWords;
  const usual = (value) => `${words(value)}${value === schema.default ? " (default)" : ""}`;
  if (schema.many || values.length > FEW_CHOICES) {
    const free = !required && (schema.default ?? null) === null; // without a choice, the service decides
    const input = element(
      "select",
      {},
      free ? element("option", { value: "" }, "not given") : null,
      values.map((value) => element("option", { value }, usual(value))),
    );
    input.value = free ? "" : (schema.default ?? values[0]);
    return {
      ...single(name, schema, required, input),
      value: () => (input.value === (schema.default ?? "") ? undefined : input.value),
      set: (value) => {
        input.value = value ?? "";
      },
    };
  }
  const radios = newId("choice");
  const inputs = values.map((value) =>
    element("input", {
      type: "radio",
      name: radios,
      id: newId("radio"),
      value,
      checked: value === (schema.default ?? values[0]),
    }),
  );
  const rows = inputs.map((input) =>
    element("div", { class: "tick" }, input, element("label", { for: input.id }, usual(input.value))),
  );
  return {
    ...group(name, schema, required, element("div", { class: "ticks" }, rows)),
    focus: inputs[0],
    value: () => {
      const { value } = inputs.find((input) => input.checked);
      return value === schema.default ? undefined : value;
    },
    set: (value) =>
      inputs.forEach((input) => {
        input.checked = input.value === value;
      }),
  };
}

/** Returns the placeholder: the default value, or else an example. */
function hint({ default: usual, examples }) {
  if (usual !== undefined && usual !== null && usual !== "") return `default: ${usual}`;
  const [example] = examples ?? [];
  return ["string", "number"].includes(typeof example) ? `such as ${example}` : null;
}

/** The input of a control cannot be parsed. It must not count as empty, which means the default. */
export class Unreadable extends Error {
  constructor(control) {
    super("this is not a number");
    this.title = "Not a number";
    this.control = control;
  }
}

export function numeral(name, schema, required) {
  const whole = schema.type === "integer";
  const least =
    schema.minimum ??
    (whole && schema.exclusiveMinimum !== undefined ? schema.exclusiveMinimum + 1 : schema.exclusiveMinimum);
  const input = element("input", {
    type: "number",
    inputmode: whole ? "numeric" : "decimal",
    step: whole ? 1 : "any",
    min: least,
    max: schema.maximum > Number.MAX_SAFE_INTEGER / 2 ? null : schema.maximum,
    placeholder: hint(schema),
  });
  const control = single(name, schema, required, input);
  return {
    ...control,
    value: () => {
      if (input.validity.badInput) throw new Unreadable(control);
      return input.value === "" ? undefined : numberOf(input.value);
    },
    set: (value) => {
      input.value = value ?? "";
    },
  };
}

export function text(name, schema, required) {
  const secret = schema.writeOnly === true;
  const long = schema.maxLength > MOST_OF_A_LINE;
  const input = element(long ? "textarea" : "input", {
    type: long ? null : secret ? "password" : "text",
    rows: long ? 3 : null,
    autocomplete: "off",
    spellcheck: "false",
    maxlength: schema.maxLength,
    placeholder: secret ? null : hint(schema),
  });
  return {
    ...single(name, schema, required, input),
    value: () => (input.value === "" ? undefined : input.value),
    set: (value) => {
      input.value = value ?? "";
    },
  };
}

/** Input for any JSON value in one line; text that is not JSON is a string. */
export function anyValue(name, schema, required) {
  const control = text(name, schema, required);
  return {
    ...control,
    value: () => {
      const given = control.value();
      if (given === undefined) return undefined;
      return parsed(given);
    },
    set: (value) => control.set(unparsed(value)),
  };
}

function parsed(written) {
  try {
    return parse(written);
  } catch {
    return written;
  }
}

/** Returns the text that `parsed` turns into the value. */
const unparsed = (value) =>
  typeof value === "string" && parsed(value) === value ? value : stringify(value);

/** Select element for one of the table's fields. */
export function oneField(name, schema, required, fields) {
  const input = element(
    "select",
    {},
    element("option", { value: "" }, "none"),
    fields.map((field, index) =>
      element("option", { value: String(index) }, `${shown(field.name)} (${field.type})`),
    ),
  );
  return {
    ...single(name, schema, required, input),
    value: () => (input.value === "" ? undefined : fields[Number(input.value)].name),
    set: (value) => {
      const index = fields.findIndex((field) => field.name === value);
      input.value = index < 0 ? "" : String(index);
    },
  };
}

/**
 * Checkboxes for the table's fields, in the order of ticking; `lone`: a single field is not a list. Fields that
 * are ticked from the start come first, so that a long list does not hide them.
 */
export function someFields(name, schema, required, fields, lone) {
  let picked = [];
  const order = element("p", { class: "order", "aria-live": "polite" });
  const inputs = fields.map((field) =>
    element("input", {
      type: "checkbox",
      id: newId("field"),
      onchange: (event) => {
        picked = picked.filter((other) => other !== field.name);
        if (event.target.checked) picked.push(field.name);
        showOrder();
      },
    }),
  );
  const rows = inputs.map((input, index) =>
    element(
      "div",
      { class: "tick" },
      input,
      element("label", { for: input.id }, named(fields[index].name), " ", element("small", {}, fields[index].type)),
    ),
  );
  const showOrder = () => {
    order.replaceChildren();
    if (lone && picked.length > 1)
      order.append(
        "In this order: ",
        ...picked.flatMap((each, index) => (index ? [", ", named(each)] : [named(each)])),
      );
  };
  const list = element("div", { class: "ticks fields-to-tick" }, rows);
  const control = group(name, schema, required, [list, order]);
  return {
    ...control,
    focus: inputs[0] ?? control.node,
    value: () => (picked.length ? (lone && picked.length === 1 ? picked[0] : [...picked]) : undefined),
    set: (value) => {
      const wanted = [value ?? []].flat();
      picked = wanted.filter((each) => fields.some((field) => field.name === each));
      inputs.forEach((input, index) => {
        input.checked = picked.includes(fields[index].name);
      });
      list.prepend(...rows.filter((_, index) => inputs[index].checked));
      showOrder();
    },
  };
}

const BETTER_OF = ({ goal }) => (goal ? ` (${better(goal)})` : "");

/** Select element for one of the figures by which runs are ranked; without a choice, the default. */
export function oneFigure(name, schema, required, figures) {
  const options = Map.groupBy(figures, ({ kind }) => kind);
  const headings = { risk: "Risk", utility: "Utility", use: "By the use of the release" };
  const input = element(
    "select",
    {},
    element("option", { value: "" }, "chosen by the service"),
    [...options].map(([kind, some]) =>
      element(
        "optgroup",
        { label: headings[kind] },
        some.map((each) => element("option", { value: each.name }, `${each.words}${BETTER_OF(each)}`)),
      ),
    ),
  );
  const control = single(name, schema, required, input);
  const meaning = element("p", { class: "about meaning", "aria-live": "polite" });
  const show = () => {
    meaning.textContent = figures.find((each) => each.name === input.value)?.meaning ?? "";
  };
  input.addEventListener("change", show);
  input.after(meaning);
  return {
    ...control,
    value: () => (input.value === "" ? undefined : input.value),
    set: (value) => {
      input.value = value ?? "";
      show();
    },
  };
}

/** Checkboxes for measures or figures, each with its meaning and its better values; none ticked is the default. */
export function someFigures(name, schema, required, entries) {
  const inputs = entries.map(() => element("input", { type: "checkbox", id: newId("figure") }));
  const rows = entries.map((each, at) => {
    const about = newId("about");
    inputs[at].setAttribute("aria-describedby", about);
    return element(
      "div",
      { class: "tick" },
      inputs[at],
      element(
        "div",
        {},
        element("label", { for: inputs[at].id }, each.words),
        element("small", { id: about, class: "block" }, `${each.meaning}${BETTER_OF(each)}`.trim()),
      ),
    );
  });
  const control = group(name, schema, required, element("div", { class: "ticks fields-to-tick wide-ticks" }, rows));
  return {
    ...control,
    focus: inputs[0] ?? control.node,
    value: () => {
      const picked = entries.filter((_, at) => inputs[at].checked).map((each) => each.name);
      return picked.length ? picked : undefined;
    },
    set: (value) =>
      inputs.forEach((input, at) => {
        input.checked = [value ?? []].flat().includes(entries[at].name);
      }),
  };
}

/** Numbers or strings, one per line. If both are allowed, a string that looks like a number is quoted. */
export function lines(name, schema, required, items) {
  const kinds = (items.anyOf ?? [items]).map((each) => each.type);
  const mixed = kinds.includes(undefined) || new Set(kinds).size > 1;
  const example = schema.examples
    ?.map((each) => [each].flat())
    .find((each) => each.every((one) => typeof one !== "object"));
  const input = element("textarea", {
    rows: 3,
    spellcheck: "false",
    placeholder: example ? example.join("\n") : null,
  });
  const about = [
    schema.description,
    mixed ? 'A text that looks like a number stands in quotes, as in "007".' : null,
  ];
  const description = about.filter(Boolean).join(" ");
  const control = single(name, { ...schema, description }, required, input, `${titled(name, schema)}, one a line`);
  const asNumber = (line) => (Number.isNaN(numberOf(line)) ? line : numberOf(line));
  const unchanged = (line) => line;
  const read = mixed ? parsed : kinds[0] === "string" ? unchanged : asNumber;
  return {
    ...control,
    value: () => {
      const given = input.value
        .split("\n")
        .map((line) => line.trim())
        .filter(Boolean);
      return given.length ? given.map(read) : undefined;
    },
    set: (value) => {
      input.value = (value ?? []).map(mixed ? unparsed : written).join("\n");
    },
  };
}
