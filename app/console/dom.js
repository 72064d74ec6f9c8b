// DOM elements built from text only: no text of a table, a job or the service is parsed as markup.

import { label, say, sayError } from "./words.js";

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected"]);
const UNSEEN = /[\p{Cc}\u00ad\u061c\u200b-\u200c\u200e-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

let made = 0;

/** Returns an id that is unique on the page. */
export function newId(word) {
  made += 1;
  return `${word}-${made}`;
}

/** Creates an element. `on…` attributes are listeners; null, undefined and false values are skipped. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (PROPERTIES.has(key)) node[key] = value ?? "";
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(key, value === true ? "" : value);
  }
  node.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return node;
}

/** Returns the text with invisible characters escaped: control characters and bidirectional marks. */
export function shown(text) {
  if (text === "") return "(no name)";
  return text.replace(UNSEEN, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
}

/** Isolates a user-supplied name, so that its direction and spaces do not affect the text around it. */
export function named(text) {
  return element("span", { class: "name", dir: "auto" }, shown(text));
}

/** Returns a text of the API for people, without keys in backticks. */
export const prose = (text) => [say(text)];

/** `swap_fields` as "Swap fields". */
export const humanised = label;

/** Creates a table with a caption that scrolls if it is too wide; `head` has the column names. */
export function table(caption, head, rows) {
  const id = newId("caption");
  const scrolling = element(
    "div",
    { class: "scroll", role: "group", tabindex: "0", "aria-labelledby": id },
    element(
      "table",
      { "aria-labelledby": id },
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          head.map((name) => element("th", { scope: "col" }, name)),
        ),
      ),
      element(
        "tbody",
        {},
        rows.map(({ cells, marked }) =>
          element(
            "tr",
            { class: marked ? "marked" : null },
            cells.map((cell, at) => (at ? element("td", {}, cell) : element("th", { scope: "row" }, cell))),
          ),
        ),
      ),
    ),
  );
  return [element("p", { id, class: "quiet" }, caption), scrolling];
}

/** Creates a description list; pairs with a null or undefined value are skipped. */
export function facts(pairs) {
  return element(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value))),
  );
}

/** Disables a button until `work()` has ended, and gives it back the focus, which a disabled button loses. */
export async function whileDisabled(button, work) {
  const hadFocus = document.activeElement === button;
  button.disabled = true;
  try {
    await work();
  } finally {
    button.disabled = false;
    if (hadFocus && document.activeElement === document.body) button.focus();
  }
}

/** Returns an error for people; the names in it may have invisible characters. */
export const errorWords = (text) => text && shown(sayError(text));

/** Creates an alert that screen readers announce immediately; it takes the focus for keyboard users. */
export function alarm(problem) {
  return element(
    "div",
    { class: "alarm", role: "alert", tabindex: "-1" },
    element("strong", {}, problem.title ?? "Not done"),
    element("p", {}, errorWords(problem.message)),
    problem.others?.length
      ? element(
          "ul",
          {},
          problem.others.map((other) => element("li", {}, errorWords(other))),
        )
      : null,
  );
}
