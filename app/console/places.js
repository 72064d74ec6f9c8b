// Where one is: the part of the address after `#/`, as decoded segments.

export const here = () =>
  location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);

export const placeOf = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

export function go(...parts) {
  location.hash = placeOf(...parts);
}
