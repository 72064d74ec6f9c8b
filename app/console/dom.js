// Elements made of text alone: nothing that a table, a job or the service says is read as markup.

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected"]);
const UNSEEN = /[\p{Cc}\u00ad\u061c\u200b-\u200c\u200e-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

let made = 0;

/** An id that no other element of the page has. */
export function newId(word) {
  made += 1;
  return `${word}-${made}`;
}

/** The element; `on…` attributes are listeners, and what is null, undefined or false is left out. */
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

/** The text with what the eye would miss spelt out: controls, and signs that turn the direction. */
export function shown(text) {
  if (text === "") return "(no name)";
  return text.replace(UNSEEN, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
}

/** A name that somebody else chose, set apart so that its direction and its spaces stay its own. */
export function named(text) {
  return element("span", { class: "name", dir: "auto" }, shown(text));
}

/** The text with what stands between backticks as code. */
export function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

/** `swap_fields` as "Swap fields". */
export function humanised(name) {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** A title, and a table that scrolls by itself where it is too wide; `head` names the columns. */
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

/** Terms and what they stand for; a pair whose value is null or undefined is left out. */
export function facts(pairs) {
  return element(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value))),
  );
}

/** What went wrong, said at once to whoever cannot see it; focused, so that the next key is near it. */
export function alarm(problem) {
  return element(
    "div",
    { class: "alarm", role: "alert", tabindex: "-1" },
    element("strong", {}, problem.title ?? "Not done"),
    element("p", {}, ...prose(problem.message)),
    problem.others?.length
      ? element(
          "ul",
          {},
          problem.others.map((other) => element("li", {}, ...prose(other))),
        )
      : null,
  );
}
