// JSON whose whole numbers stay exact: those that a JavaScript number would round are BigInts.

/** Begins a text that stands for a whole number. Random, so that no text of the service begins with it. */
const MARK = `${Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("")}:`;
const TOKEN = /"(?:[^"\\]|\\.)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/g;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g");
const WHOLE = /^[+-]?\d+$/;
const MANY_DIGITS = /\d{16}/;

/** Returns a whole number from its digits: a number if that is exact, else a BigInt. */
function wholeNumber(digits) {
  const near = Number(digits);
  return Number.isSafeInteger(near) ? near : BigInt(digits.replace("+", ""));
}

/** Returns the number that a text writes, a whole one exactly; NaN if it writes none. */
export function numberOf(text) {
  const written = text.trim();
  return WHOLE.test(written) ? wholeNumber(written) : Number(written);
}

/** Parses a JSON text. */
export function parse(text) {
  if (!MANY_DIGITS.test(text)) return JSON.parse(text);
  const marked = text.replace(TOKEN, (token) =>
    WHOLE.test(token) && typeof wholeNumber(token) === "bigint" ? `"${MARK}${token}"` : token,
  );
  if (marked === text) return JSON.parse(text);
  return JSON.parse(marked, (_, value) =>
    typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
  );
}

/** Returns a value as JSON; a BigInt becomes a whole number. */
export function stringify(value) {
  const marked = JSON.stringify(value, (_, each) => (typeof each === "bigint" ? MARK + each : each));
  return marked?.replace(MARKED, "$1");
}

/** Whether a value is a number of JSON. */
export const isNumber = (value) => typeof value === "number" || typeof value === "bigint";
