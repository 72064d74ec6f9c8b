// Numbers, sizes, dates and durations as text.

const WHOLE = new Intl.NumberFormat("en");
const FIGURE = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const UNITS = ["bytes", "KB", "MB", "GB", "TB"];

export const number = (value) => (Number.isInteger(value) ? WHOLE.format(value) : FIGURE.format(value));

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

/** Formats a time in the local time zone. */
export function moment(text) {
  return new Date(text).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** Formats the duration between two times. */
export function between(start, end) {
  const seconds = Math.max(0, (new Date(end) - new Date(start)) / 1000);
  return seconds < 90 ? `${FIGURE.format(seconds)} s` : `${FIGURE.format(seconds / 60)} min`;
}

/** Formats a parameter's value as JSON, without quotes around a plain string. */
export const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));
