// Hash router: the address after `#/` as decoded segments.

const NOWHERE = "?";

export function currentRoute() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  try {
    return parts.map(decodeURIComponent);
  } catch {
    return [NOWHERE]; // invalid percent-encoding in a typed address
  }
}

export const routeHref = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

export function navigate(...parts) {
  location.hash = routeHref(...parts);
}
