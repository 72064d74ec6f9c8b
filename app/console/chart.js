// Small charts of a field: a histogram of numbers, or bars of the most frequent values.

import { element, named } from "./dom.js";
import { number } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 56;

function shape(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** Creates a histogram; its label says in words what it shows. */
export function histogram({ edges, counts }, name) {
  const most = Math.max(...counts, 1);
  const width = WIDTH / counts.length;
  const fullest = counts.indexOf(Math.max(...counts));
  const label = `Histogram of ${name}: ${counts.length} bins from ${edges[0]} to ${edges.at(-1)}; most values, ${number(counts[fullest])}, are from ${edges[fullest]} to ${edges[fullest + 1]}`;
  const bars = counts.map((count, at) => {
    const height = count ? Math.max(1.5, (HEIGHT * count) / most) : 0;
    const bar = shape("rect", {
      x: at * width + 0.75,
      y: HEIGHT - height,
      width: Math.max(1, width - 1.5),
      height,
    });
    bar.append(shape("title", {}, `${edges[at]} to ${edges[at + 1]}: ${number(count)}`));
    return bar;
  });
  const picture = shape(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label, class: "histogram" },
    ...bars,
  );
  return element(
    "div",
    { class: "chart" },
    picture,
    element("div", { class: "ends", "aria-hidden": "true" }, element("span", {}, edges[0]), element("span", {}, edges.at(-1))),
  );
}

/** Creates a list of values with bars; `rest` counts the rows of the values that are not listed. */
export function bars(values, rest) {
  const most = Math.max(...values.map(({ count }) => count), 1);
  const row = (words, count) =>
    element(
      "li",
      {},
      element("span", { class: "value" }, words),
      element("meter", { min: 0, max: most, value: Math.min(count, most), "aria-hidden": "true" }),
      element("span", { class: "count" }, number(count)),
    );
  return element(
    "ul",
    { class: "bars" },
    values.map(({ value, count }) => row(named(value), count)),
    rest > 0 ? element("li", { class: "quiet" }, `other values: ${number(rest)}`) : null,
  );
}
