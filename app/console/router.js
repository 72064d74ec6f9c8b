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

let visits = 0;
addEventListener("hashchange", () => {
  visits += 1;
});

/**
 * Returns a `navigate` for the response to a request: it does nothing and returns false when the user has navigated in
 * the meantime.
 */
export function navigateUnlessLeft() {
  const visit = visits;
  return (...parts) => visit === visits && navigate(...parts);
}
