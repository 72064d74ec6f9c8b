// Numbers, sizes, dates and durations as text.

import { isNumber, stringify } from "./exact_json.js";

const WHOLE = new Intl.NumberFormat("en");
const FIGURE = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const POWER = new Intl.NumberFormat("en", { notation: "scientific", maximumSignificantDigits: 4 });
const UNITS = ["bytes", "KB", "MB", "GB", "TB"];

/** Formats a number, a whole one with all digits; one so large that its digits are not exact, as a power of ten. */
export function number(value) {
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return WHOLE.format(value);
  return Math.abs(value) >= 1e15 ? POWER.format(value) : FIGURE.format(value);
}

/** Formats a share in whole percent; neither 0 % nor 100 % stands for a share in between. */
export function percent(share) {
  if (share > 0 && share < 0.005) return "below 1 %";
  if (share < 1 && share >= 0.995) return "above 99 %";
  return `${Math.round(100 * share)} %`;
}

export const counted = (count, word) => `${WHOLE.format(count)} ${word}${count === 1 ? "" : "s"}`;

/** Formats bytes in the first unit in which the number is below a thousand. */
export function bytes(count) {
  let unit = 0;
  while (count >= 1000 && unit < UNITS.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${FIGURE.format(count)} ${UNITS[unit]}`;
}

/** Formats a time in the local time zone; the style `medium` has seconds. */
export function moment(text, timeStyle = "short") {
  return new Date(text).toLocaleString("en-GB", { dateStyle: "medium", timeStyle });
}

/** Formats the duration between two times. */
export function between(start, end) {
  const seconds = Math.max(0, (new Date(end) - new Date(start)) / 1000);
  return seconds < 90 ? `${FIGURE.format(seconds)} s` : `${FIGURE.format(seconds / 60)} min`;
}

const PLAIN = /^[^\s,"[\]{}]([^,"[\]{}]*[^\s,"[\]{}])?$/u; // a text that is not mistaken for several, or for JSON

const isPlain = (value) => isNumber(value) || (typeof value === "string" && PLAIN.test(value));

/** Formats a parameter's value: a text as it is, a list of plain texts and numbers with commas, all else as JSON. */
export function written(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value) && value.length && value.every(isPlain)) return value.join(", ");
  return stringify(value);
}
