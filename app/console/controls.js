// A control for each kind of value that a schema can ask for.
//
// A control is {node, focus, value(), set(value), parts}: value() is undefined where nothing is given;
// parts are the controls inside it by name, for the place that an error points to.

import { element, humanised, named, newId, prose, shown } from "./dom.js";
import { written } from "./words.js";

const FEW_CHOICES = 5;

/** The explanation under a name, and the place where a fault will stand. */
function explained(schema) {
  const about = newId("about");
  const fault = element("p", { class: "fault", id: newId("fault"), hidden: true });
  const text = schema.description?.replaceAll("\n", " ");
  return {
    about: text ? element("p", { class: "about", id: about }, ...prose(text)) : null,
    fault,
    describedby: text ? `${about} ${fault.id}` : fault.id,
  };
}

/** Shows a fault at the control, or takes it away where the message is empty. */
const faulty = (fault, input) => (message) => {
  fault.textContent = message;
  fault.hidden = !message;
  if (message) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
};

/** A label, an explanation and one input. */
function single(name, schema, required, input, label = humanised(name)) {
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
    focus: input,
    fault: faulty(fault, input),
    parts: {},
  };
}

/** A fieldset with a legend, an explanation and what is inside. */
export function group(name, schema, required, inside, className = "control") {
  const { about, fault, describedby } = explained(schema);
  const node = element(
    "fieldset",
    { class: className, "aria-describedby": describedby },
    element("legend", {}, humanised(name), required ? element("span", { class: "needed" }, " needed") : null),
    about,
    inside,
    fault,
  );
  return { node, focus: node, fault: faulty(fault, node), parts: {} };
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
  const usual = (value) => `${value}${value === schema.default ? " (default)" : ""}`;
  if (schema.many || values.length > FEW_CHOICES) {
    const input = element(
      "select",
      {},
      values.map((value) => element("option", { value }, usual(value))),
    );
    input.value = schema.default ?? values[0];
    return {
      ...single(name, schema, required, input),
      value: () => (input.value === schema.default ? undefined : input.value),
      set: (value) => {
        input.value = value;
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

/** What an empty input stands for, or else what one might write. */
function hint({ default: usual, examples }) {
  if (usual !== undefined && usual !== null && usual !== "") return `default: ${usual}`;
  const [example] = examples ?? [];
  return ["string", "number"].includes(typeof example) ? `such as ${example}` : null;
}

/** What stands in a control is nothing of its kind. It is no empty one, which would stand for the default. */
export class Unreadable extends Error {
  title = "Not a number";

  constructor(control) {
    super("what is written here is no number");
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
      return input.value === "" ? undefined : Number(input.value);
    },
    set: (value) => {
      input.value = value ?? "";
    },
  };
}

export function text(name, schema, required) {
  const secret = schema.writeOnly === true;
  const input = element("input", {
    type: secret ? "password" : "text",
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

/** Any JSON value in one line; what is no JSON is a text. */
export function anyValue(name, schema, required) {
  const control = text(name, schema, required);
  return {
    ...control,
    value: () => {
      const given = control.value();
      return given === undefined ? undefined : parsed(given);
    },
    set: (value) => control.set(unparsed(value)),
  };
}

function parsed(written) {
  try {
    return JSON.parse(written);
  } catch {
    return written;
  }
}

/** What `parsed` makes the value of. */
const unparsed = (value) =>
  typeof value === "string" && parsed(value) === value ? value : JSON.stringify(value);

/** One of the table's fields. */
export function oneField(name, schema, required, fields) {
  const input = element(
    "select",
    {},
    element("option", { value: "" }, "none"),
    fields.map((field, at) =>
      element("option", { value: String(at) }, `${shown(field.name)} (${field.type})`),
    ),
  );
  return {
    ...single(name, schema, required, input),
    value: () => (input.value === "" ? undefined : fields[Number(input.value)].name),
    set: (value) => {
      const at = fields.findIndex((field) => field.name === value);
      input.value = at < 0 ? "" : String(at);
    },
  };
}

/** Some of the table's fields, in the order in which they were ticked; `lone`: one alone is no list. */
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
        tell();
      },
    }),
  );
  const rows = inputs.map((input, at) =>
    element(
      "div",
      { class: "tick" },
      input,
      element("label", { for: input.id }, named(fields[at].name), " ", element("small", {}, fields[at].type)),
    ),
  );
  const tell = () => {
    order.replaceChildren();
    if (lone && picked.length > 1)
      order.append(
        "In this order: ",
        ...picked.flatMap((each, at) => (at ? [", ", named(each)] : [named(each)])),
      );
  };
  const control = group(name, schema, required, [
    element("div", { class: "ticks fields-to-tick" }, rows),
    order,
  ]);
  return {
    ...control,
    focus: inputs[0] ?? control.node,
    value: () => (picked.length ? (lone && picked.length === 1 ? picked[0] : [...picked]) : undefined),
    set: (value) => {
      const wanted = [value ?? []].flat();
      picked = wanted.filter((each) => fields.some((field) => field.name === each));
      inputs.forEach((input, at) => {
        input.checked = picked.includes(fields[at].name);
      });
      tell();
    },
  };
}

/** Numbers or texts, one a line. Where both may stand, or any JSON value, a text like a number is in quotes. */
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
  const control = single(name, { ...schema, description }, required, input, `${humanised(name)}, one a line`);
  const asNumber = (line) => (Number.isNaN(Number(line)) ? line : Number(line));
  const read = mixed ? parsed : kinds[0] === "string" ? (line) => line : asNumber;
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
