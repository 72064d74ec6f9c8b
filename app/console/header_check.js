// Check of a CSV before its upload: delimiter and decimal mark, and whether its first line looks like data.

import { records } from "./csv.js";

const LOOKED_AT = 20_000;
const DELIMITERS = [",", ";", "\t", "|"];
const NUMBER = /^[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?$/;
const MOMENT = /^\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([T ]\d.*)?$/;

/** Returns the first bytes of a file, decompressed if its name ends in .gz. */
async function firstBytes(file) {
  if (!/\.gz$/i.test(file.name)) return new Uint8Array(await file.slice(0, LOOKED_AT).arrayBuffer());
  const reader = file.stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const chunks = [];
  for (let length = 0; length < LOOKED_AT; ) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    length += value.length;
  }
  await reader.cancel();
  return new Uint8Array(await new Blob(chunks).slice(0, LOOKED_AT).arrayBuffer());
}

/** Returns the encoding that the file's first two bytes, a byte order mark, state; undefined without one. */
function markedEncoding([first, second]) {
  if (first === 0xff && second === 0xfe) return { name: "utf-16", decoder: "utf-16le" };
  if (first === 0xfe && second === 0xff) return { name: "utf-16", decoder: "utf-16be" };
  return undefined;
}

const QUOTED = /(^|[,;\t|\r\n])"(?:[^"]|"")*"/g;

/** Returns the delimiter that is most frequent in the first line, outside quoted names. */
export function delimiterOf(text) {
  const [names] = text.replace(QUOTED, "$1").split(/[\r\n]/);
  const often = (sign) => names.split(sign).length;
  return DELIMITERS.reduce((best, sign) => (often(sign) > often(best) ? sign : best));
}

const isValue = (cell) => cell === null || NUMBER.test(cell.trim()) || MOMENT.test(cell.trim());

/**
 * Returns why a first line looks like data and not like names, or null. A name is no number, no date, not
 * empty and not given twice; a text that occurs again below in its own column is a value.
 */
function whyData(cells, below) {
  const values = cells.filter(isValue);
  if (values.some((cell) => cell !== null)) {
    const cell = values.find((each) => each !== null);
    return `it has ${/^\d{4}\D/.test(cell) || MOMENT.test(cell) ? "a date" : "a number"} (${cell.trim()}) where a name is expected`;
  }
  const again = cells.findIndex((cell, at) => cell !== null && below.some((row) => row[at] === cell));
  if (again >= 0 && below.length) return `its text “${cells[again]}” occurs again below, in the same column`;
  return null;
}

const COMMA = /^-?\d+,\d+$/;
const POINT = /^-?\d+\.\d+$/;
const THOUSANDS = /^-?[1-9]\d{0,2}[.,]\d{3}$/; // or a fraction of three digits

/** Returns a cell whose comma may be a decimal mark and separates no thousands, unless points are the mark. */
export function decimalCommaOf(cells) {
  const clear = cells.filter((cell) => cell !== null && !THOUSANDS.test(cell));
  return clear.some((cell) => POINT.test(cell)) ? undefined : clear.find((cell) => COMMA.test(cell));
}

/**
 * Returns {found, cells, why, comma} of a CSV: `found` is what the user stated, with encoding and delimiter if the
 * file shows them; `cells` is its first line, and `why` it looks like data, if it does; `comma` is a cell that may
 * have a decimal comma.
 */
export async function checkFirstLine(file, stated) {
  const { encoding, delimiter } = stated;
  const bytes = await firstBytes(file);
  const marked = markedEncoding(bytes);
  const text = new TextDecoder(marked?.decoder ?? encoding ?? "utf-8").decode(bytes, { stream: true });
  const sign = delimiter === "tab" ? "\t" : (delimiter ?? delimiterOf(text));
  const [cells = [], ...below] = records(text, bytes.length < LOOKED_AT, sign);
  return {
    found: { ...(marked ? { encoding: marked.name } : {}), delimiter: sign, ...stated },
    cells,
    why: cells.length ? whyData(cells, below) : null,
    comma: decimalCommaOf([cells, ...below].flat()),
  };
}
