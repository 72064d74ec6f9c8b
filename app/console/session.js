// Session storage of this tab: access key and uploaded tables; cleared when the tab is closed.

const KEY = "rowveil.key";
const TABLES = "rowveil.tables";
const ROLES = "rowveil.roles.";
const DRAFT = "rowveil.draft";
const ENTERED = "rowveil.entered.";

const read = (name, absent) => JSON.parse(sessionStorage.getItem(name) ?? "null") ?? absent;
const write = (name, value) => sessionStorage.setItem(name, JSON.stringify(value));

export const key = () => sessionStorage.getItem(KEY) ?? "";

/** Stores the key, or removes it if it is empty. */
export function setKey(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** Returns the unexpired tables that were uploaded or named in this tab, newest first. */
export function tables() {
  return read(TABLES, []).filter((one) => new Date(one.expires_at) > new Date());
}

/** Stores a buffer's id, file name and digest, but none of its rows. */
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

/** Field -> role chosen by the user, if it differs from the guess. A Map: a field may be named `constructor`. */
export const roles = (id) => new Map(Object.entries(read(ROLES + id, {})));

export const setRole = (id, field, role) =>
  write(ROLES + id, Object.fromEntries(roles(id).set(field, role)));

/** Returns and removes the initial parameters of a form. */
export function takeDraft(service) {
  const draft = read(DRAFT, null);
  if (draft?.service !== service) return null;
  sessionStorage.removeItem(DRAFT);
  return draft.parameters;
}

export const setDraft = (service, parameters) => write(DRAFT, { service, parameters });

/** Returns what was last entered in the form of a place, or null. */
export const entered = (place) => read(ENTERED + place, null);

/** Stores what was entered in the form of a place. It must hold no secret. */
export const keepEntered = (place, values) => write(ENTERED + place, values);
