// Chart of a comparison, whose points are buttons.

import { element, shown } from "./dom.js";
import { number } from "./format.js";

const EDGE = 6; // per cent of the chart that is free on each side

/** Creates the chart; `choose(point, number)` is called with the point that was clicked. */
export function frontierChart({ points, risk, utility, goals }, choose) {
  const placed = points.filter((point) => !point.error && Number.isFinite(Number(point.risk) + Number(point.utility)));
  if (!placed.length) return null;
  const limits = (point, name) => {
    const interval = point[`${name}_interval`];
    return interval ? [interval.low, interval.high] : [];
  };
  const scale = (name) => {
    const values = placed.flatMap((point) => [point[name], ...limits(point, name)]);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    return (value) => EDGE + (most > least ? (value - least) / (most - least) : 0.5) * (100 - 2 * EDGE);
  };
  const [across, up] = [scale("risk"), scale("utility")];
  const better = (goal) => ({ low: "less is better", high: "more is better" })[goal] ?? "";
  const buttons = placed.map((point) => {
    const which = points.indexOf(point) + 1;
    const value = (name) => withLimits(point[name], point[`${name}_interval`]);
    const words = `${which}: ${point.service}, risk ${value("risk")}, utility ${value("utility")}`;
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
  const bars = placed.flatMap((point) => {
    const [low, high] = limits(point, "risk").map(across);
    const [bottom, top] = limits(point, "utility").map(up);
    return [
      low === undefined ? null : bar({ left: low, width: high - low, bottom: up(point.utility) }, "across"),
      bottom === undefined ? null : bar({ left: across(point.risk), bottom, height: top - bottom }, "up"),
    ].filter(Boolean);
  });
  return element(
    "div",
    { class: "chart", role: "group", "aria-label": "Points of the comparison" },
    element("p", { class: "quiet" }, `↑ Utility: ${utility} (${better(goals.utility)})`),
    element("div", { class: "plot" }, bars, buttons),
    element("p", { class: "quiet" }, `→ Risk: ${risk} (${better(goals.risk)}). Click a point to use it.`),
    bars.length ? element("p", { class: "quiet" }, "Thin lines are 95 % intervals.") : null,
  );
}

/** Formats a figure and its 95 % interval, if it has one that is wider than the figure. */
export function withLimits(value, interval) {
  if (!interval || (interval.low === value && interval.high === value)) return number(value);
  return `${number(value)} (${number(interval.low)} to ${number(interval.high)})`;
}

/** Creates the line of an interval; all lengths are in per cent of the chart. */
function bar(place, direction) {
  const line = element("span", { class: `interval ${direction}`, "aria-hidden": "true" });
  for (const [name, length] of Object.entries(place)) line.style[name] = `${length}%`;
  return line;
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
