// Session storage of this tab: access key and uploaded tables; cleared when the tab is closed.

import { parse, stringify } from "./exact_json.js";

const KEY = "rowveil.key";
const TABLES = "rowveil.tables";
const ROLES = "rowveil.roles.";
const DRAFT = "rowveil.draft";
const ENTERED = "rowveil.entered.";

/** Entries that the browser refused to store: the storage is full, or site data are blocked. They last until a reload. */
const unstored = new Map();

/** Returns what `use` returns of the session storage, or `absent` if the browser refuses the access. */
function ofStorage(use, absent) {
  try {
    return use(sessionStorage);
  } catch {
    return absent;
  }
}

const textOf = (name) => unstored.get(name) ?? ofStorage((storage) => storage.getItem(name), null);

function remove(name) {
  unstored.delete(name);
  ofStorage((storage) => storage.removeItem(name));
}

function setText(name, text) {
  const isStored = (storage) => {
    storage.setItem(name, text);
    return true;
  };
  remove(name); // an older text would come back after a reload
  if (!ofStorage(isStored, false)) unstored.set(name, text);
}

const read = (name, absent) => parse(textOf(name) ?? "null") ?? absent;
const write = (name, value) => setText(name, stringify(value));

export const key = () => textOf(KEY) ?? "";

/** Stores the key, or removes it if it is empty. */
export function setKey(text) {
  if (text) setText(KEY, text);
  else remove(KEY);
}

const isExpired = (table) => new Date(table.expires_at) <= new Date();

/** Returns the unexpired tables that were uploaded or named in this tab, newest first. */
export const tables = () => read(TABLES, []).filter((one) => !isExpired(one));

/** Stores a buffer's id, file name, digest, and how its CSV was written, but none of its rows. */
export function remember(buffer, name, csv) {
  const { id, digest, row_count, expires_at } = buffer;
  read(TABLES, []).filter(isExpired).forEach((one) => forgetEntries(one.id));
  const others = tables().filter((one) => one.id !== id);
  const known = tables().find((one) => one.id === id);
  const { name: before, csv: written } = known ?? {};
  write(TABLES, [{ id, digest, row_count, expires_at, name: name ?? before ?? id, csv: csv ?? written }, ...others]);
}

/** Removes a table, with the roles of its fields and the entries of its forms. */
export function forget(id) {
  forgetEntries(id);
  write(
    TABLES,
    tables().filter((one) => one.id !== id),
  );
}

/** Removes the roles of a table and the entries of the forms of a table or job. */
export function forgetEntries(id) {
  const names = [...ofStorage(Object.keys, []), ...unstored.keys()];
  names.filter((name) => name === ROLES + id || name.startsWith(`${ENTERED}${id}.`)).forEach(remove);
}

/** Field -> role chosen by the user, if it differs from the guess. A Map: a field may be named `constructor`. */
export const roles = (id) => new Map(Object.entries(read(ROLES + id, {})));

export const setRole = (id, field, role) =>
  write(ROLES + id, Object.fromEntries(roles(id).set(field, role)));

/** Returns and removes the initial entries of a form. */
export function takeDraft(service) {
  const draft = read(DRAFT, null);
  if (draft?.service !== service) return null;
  remove(DRAFT);
  return draft.entries;
}

export const setDraft = (service, entries) => write(DRAFT, { service, entries });

/** Returns what was last entered in the form of a place, or null. */
export const entered = (place) => read(ENTERED + place, null);

/** Stores what was entered in the form of a place. It must hold no secret. */
export const keepEntered = (place, values) => write(ENTERED + place, values);
