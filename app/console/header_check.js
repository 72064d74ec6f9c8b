// Check of a CSV before its upload: its delimiter, and whether its first line looks like data.

import { records } from "./csv.js";

const LOOKED_AT = 20_000;
const DELIMITERS = [",", ";", "\t", "|"];
const NUMBER = /^[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?$/;
const MOMENT = /^\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([T ]\d.*)?$/;

/** Returns the first characters of a file, decompressed if its name ends in .gz. */
export async function firstText(file) {
  if (!/\.gz$/i.test(file.name)) return file.slice(0, LOOKED_AT).text();
  const reader = file.stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const decoder = new TextDecoder();
  let text = "";
  while (text.length < LOOKED_AT) {
    const { done, value } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
  }
  await reader.cancel();
  return text.slice(0, LOOKED_AT);
}

/** Returns the delimiter that is most frequent in the first line. */
export function delimiterOf(text) {
  const [names] = text.split(/[\r\n]/);
  const often = (sign) => names.split(sign).length;
  return DELIMITERS.reduce((best, sign) => (often(sign) > often(best) ? sign : best));
}

const isValue = (cell) => cell === null || NUMBER.test(cell.trim()) || MOMENT.test(cell.trim());

/**
 * Returns why a first line looks like data and not like names, or null. A name is no number, no date, not
 * empty and not given twice; a text that occurs again below in its own column is a value.
 */
export function whyData(cells, below) {
  const values = cells.filter(isValue);
  if (values.some((cell) => cell !== null)) {
    const cell = values.find((each) => each !== null);
    return `it has ${/^\d{4}\D/.test(cell) || MOMENT.test(cell) ? "a date" : "a number"} (${cell.trim()}) where a name would stand`;
  }
  const again = cells.findIndex((cell, at) => cell !== null && below.some((row) => row[at] === cell));
  if (again >= 0 && below.length) return `its text “${cells[again]}” occurs again below, in the same column`;
  return null;
}

/** Returns {delimiter, cells, why} of a CSV: its first line, and why it looks like data, if it does. */
export async function checkFirstLine(file, delimiter) {
  const text = (await firstText(file)).replace(/^\ufeff/, "");
  const sign = delimiter === "tab" ? "\t" : (delimiter ?? delimiterOf(text));
  const [cells = [], ...below] = records(text, text.length < LOOKED_AT, sign);
  return { delimiter: sign, cells, why: cells.length ? whyData(cells, below) : null };
}
