// The records of a CSV (RFC 4180), as the service writes it: an empty cell is null, a quoted one is text.

/** Records of cells; where the text was cut off, the last record is left out. */
export function records(text, whole) {
  const found = [];
  let record = [];
  let at = 0;
  while (at < text.length) {
    let cell = null;
    if (text[at] === '"') {
      let end = at + 1;
      while (end < text.length && !(text[end] === '"' && text[end + 1] !== '"'))
        end += text[end] === '"' ? 2 : 1;
      cell = text.slice(at + 1, end).replaceAll('""', '"');
      at = end + 1;
    } else {
      const length = text.slice(at).search(/[,\r\n]/);
      const end = length < 0 ? text.length : at + length;
      cell = end > at ? text.slice(at, end) : null;
      at = end;
    }
    record.push(cell);
    if (text[at] === ",") {
      at += 1;
      if (at === text.length) record.push(null);
    } else if (at < text.length) {
      at += text.startsWith("\r\n", at) ? 2 : 1;
      found.push(record);
      record = [];
    }
  }
  if (whole && record.length) found.push(record);
  return found;
}
