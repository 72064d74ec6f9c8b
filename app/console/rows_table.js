// Tables of rows: the first rows of a table, and rows before and after a run.

import { element, named, newId, table } from "./dom.js";
import { number } from "./format.js";

const cellOf = (text) => (text === null ? element("span", { class: "quiet" }, "null") : named(text));

/** Creates a table whose column of row numbers is narrow. */
const narrow = (...parts) => [element("div", { class: "rows" }, ...table(...parts))];

/** Creates the table of the first rows. */
export function firstRows(fields, rows) {
  return narrow(
    `The first ${rows.length === 1 ? "row" : `${number(rows.length)} rows`}`,
    ["Row", ...fields.map((field) => named(field.name))],
    rows.map((cells, at) => ({ cells: [number(at + 1), ...cells.map(cellOf)] })),
  );
}

/** Creates the table of rows before and after; a changed value stands below the old one, marked. */
export function beforeAndAfter({ fields, rows, aligned }, caption) {
  const shownFields = fields.map((field, at) => ({ ...field, at }));
  const order = aligned
    ? shownFields.toSorted((one, other) => (other.changed > 0) - (one.changed > 0) || one.at - other.at)
    : shownFields;
  const cell = ({ before, after }, { at }) => {
    if (aligned && before[at] === after[at]) return cellOf(before[at]);
    return [
      element("del", {}, element("span", { class: "hidden-words" }, "before: "), cellOf(before[at])),
      " ",
      element("ins", {}, element("span", { class: "hidden-words" }, "after: "), cellOf(after[at])),
    ];
  };
  return narrow(
    caption,
    ["Row", ...order.map((field) => named(field.name))],
    rows.map((row) => ({ cells: [number(row.row + 1), ...order.map((field) => cell(row, field))] })),
  );
}

/** Creates the cross table of two fields; each cell has the number of rows before and after. */
export function crossTable({ field, by, values, by_values: columns, before, after }) {
  const id = newId("cross");
  const words = (value) => (value === null ? "null" : value);
  return [
    element(
      "p",
      { id, class: "quiet" },
      "Rows with each pair of values of ",
      named(field),
      " (down) and ",
      named(by),
      " (across): before → after",
    ),
    element(
      "div",
      { class: "scroll", role: "group", tabindex: "0", "aria-labelledby": id },
      element(
        "table",
        { "aria-labelledby": id, class: "cross" },
        element(
          "thead",
          {},
          element("tr", {}, element("td", {}), columns.map((value) => element("th", { scope: "col" }, named(words(value))))),
        ),
        element(
          "tbody",
          {},
          values.map((value, row) =>
            element(
              "tr",
              {},
              element("th", { scope: "row" }, named(words(value))),
              columns.map((_, column) => {
                const [old, now] = [before[row][column], after[row][column]];
                return element("td", {}, old === now ? number(old) : [number(old), " → ", element("ins", {}, number(now))]);
              }),
            ),
          ),
        ),
      ),
    ),
  ];
}
