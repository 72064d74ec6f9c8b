// Chart of a comparison, whose points are buttons.

import { element, shown } from "./dom.js";
import { number } from "./format.js";

const EDGE = 6; // per cent of the chart that is free on each side

/** Creates the chart; `choose(point, number)` is called with the point that was clicked. */
export function frontierChart({ points, risk, utility, goals }, choose) {
  const placed = points.filter((point) => !point.error && Number.isFinite(point.risk + point.utility));
  if (!placed.length) return null;
  const scale = (name) => {
    const values = placed.map((point) => point[name]);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    return (value) => EDGE + (most > least ? (value - least) / (most - least) : 0.5) * (100 - 2 * EDGE);
  };
  const [across, up] = [scale("risk"), scale("utility")];
  const better = (goal) => ({ low: "less is better", high: "more is better" })[goal] ?? "";
  const buttons = placed.map((point) => {
    const which = points.indexOf(point) + 1;
    const words = `${which}: ${point.service}, risk ${number(point.risk)}, utility ${number(point.utility)}`;
    const button = element(
      "button",
      {
        type: "button",
        class: point.dominated ? "point" : "point best",
        "aria-label": point.dominated ? words : `${words}, on the frontier`,
        "aria-pressed": "false",
        title: shown(words),
        onclick: () => {
          buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
          choose(point, which);
        },
      },
      String(which),
    );
    button.style.left = `${across(point.risk)}%`;
    button.style.bottom = `${up(point.utility)}%`;
    return button;
  });
  return element(
    "div",
    { class: "chart", role: "group", "aria-label": "Points of the comparison" },
    element("p", { class: "quiet" }, `↑ Utility: ${utility} (${better(goals.utility)})`),
    element("div", { class: "plot" }, buttons),
    element("p", { class: "quiet" }, `→ Risk: ${risk} (${better(goals.risk)}). Click a point to take it on.`),
  );
}

/**
 * Returns values to try around a point: of each number that varies within its service, the middles between its
 * value and the next ones that were tried.
 */
export function valuesAround(point, points) {
  const found = {};
  for (const [name, value] of Object.entries(point.parameters)) {
    const tried = points
      .filter((other) => other.service === point.service)
      .map((other) => other.parameters[name])
      .filter((each) => typeof each === "number");
    const sorted = [...new Set(tried)].sort((one, other) => one - other);
    if (typeof value !== "number" || sorted.length < 2) continue;
    const at = sorted.indexOf(value);
    const middle = (other) => {
      const between = (value + other) / 2;
      return sorted.every(Number.isInteger) ? Math.round(between) : Number(between.toPrecision(4));
    };
    const around = [sorted[at - 1], sorted[at + 1]].filter((each) => each !== undefined).map(middle);
    found[name] = [...new Set([...around, value])].sort((one, other) => one - other);
  }
  return found;
}
