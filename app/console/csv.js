// Parser of CSV as the service writes it (RFC 4180): an empty cell is null, a quoted empty one is text.

/** Returns records of cells; drops the last record unless the text is `whole`. */
export function records(text, whole, delimiter = ",") {
  const ends = new RegExp(`[${delimiter.replace(/[\\\]^-]/, "\\$&")}\r\n]`);
  const found = [];
  let record = [];
  let position = 0;
  while (position < text.length) {
    let cell = null;
    if (text[position] === '"') {
      let end = position + 1;
      while (end < text.length && !(text[end] === '"' && text[end + 1] !== '"'))
        end += text[end] === '"' ? 2 : 1;
      cell = text.slice(position + 1, end).replaceAll('""', '"');
      position = end + 1;
    } else {
      const length = text.slice(position).search(ends);
      const end = length < 0 ? text.length : position + length;
      cell = end > position ? text.slice(position, end) : null;
      position = end;
    }
    record.push(cell);
    if (text[position] === delimiter) {
      position += 1;
      if (position === text.length) record.push(null);
    } else if (position < text.length) {
      position += text.startsWith("\r\n", position) ? 2 : 1;
      found.push(record);
      record = [];
    }
  }
  if (whole && record.length) found.push(record);
  return found;
}
