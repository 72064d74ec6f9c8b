// Where one is: the part of the address after `#/`, as decoded segments.

const NOWHERE = "?";

export function here() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  try {
    return parts.map(decodeURIComponent);
  } catch {
    return [NOWHERE]; // a lone % in an address that somebody typed
  }
}

export const placeOf = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

export function go(...parts) {
  location.hash = placeOf(...parts);
}
