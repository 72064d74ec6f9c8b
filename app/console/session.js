// What this tab remembers: the key, and which tables were uploaded. It goes when the tab is closed.

const KEY = "rowveil.key";
const TABLES = "rowveil.tables";
const ROLES = "rowveil.roles.";
const DRAFT = "rowveil.draft";

const read = (name, absent) => JSON.parse(sessionStorage.getItem(name) ?? "null") ?? absent;
const write = (name, value) => sessionStorage.setItem(name, JSON.stringify(value));

export const key = () => sessionStorage.getItem(KEY) ?? "";

/** Keep the key, or forget it where it is empty. */
export function setKey(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** The tables that were uploaded or named here and have not expired, newest first. */
export function tables() {
  return read(TABLES, []).filter((one) => new Date(one.expires_at) > new Date());
}

/** Remember the buffer by its id, its file's name and its digest; never a row of it. */
export function remember(buffer, name) {
  const { id, digest, row_count, expires_at } = buffer;
  const others = tables().filter((one) => one.id !== id);
  const known = tables().find((one) => one.id === id);
  write(TABLES, [{ id, digest, row_count, expires_at, name: name ?? known?.name ?? id }, ...others]);
}

export const forget = (id) =>
  write(
    TABLES,
    tables().filter((one) => one.id !== id),
  );

/** Field -> the role that the curator gave it, where that is not the guess. A map: a field may be `constructor`. */
export const roles = (id) => new Map(Object.entries(read(ROLES + id, {})));

export const setRole = (id, field, role) =>
  write(ROLES + id, Object.fromEntries(roles(id).set(field, role)));

/** Parameters to start a form with, taken once. */
export function takeDraft(service) {
  const draft = read(DRAFT, null);
  if (draft?.service !== service) return null;
  sessionStorage.removeItem(DRAFT);
  return draft.parameters;
}

export const setDraft = (service, parameters) => write(DRAFT, { service, parameters });
