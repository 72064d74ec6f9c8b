// Headline of a report, and the pictures of the fields before and after, which begin a job's page.

import { element, shown } from "./dom.js";
import { sayOfTable } from "./words.js";

const CLASSES = { low: "good", elevated: "warning", high: "alarm", unknown: "unknown" };
const MOST_PICTURES = 3;
const EVENTS = ["beforeprint", "afterprint"];
const PAPER = "42rem"; // narrower than the print on any usual paper

/** Creates the box with the three sentences; its colour follows the state, which the first words name. */
export function headlineOf({ headline }, title = "In three sentences") {
  if (!headline) return null;
  const [risk, ...others] = headline.sentences;
  return element(
    "section",
    { class: `headline ${CLASSES[headline.state]}`, "aria-label": title },
    element("p", {}, element("strong", {}, shown(risk))), // its quoted names are of fields, also one named "rate"
    others.map((sentence) => element("p", {}, shown(sayOfTable(sentence)))),
  );
}

/**
 * Shows a page of this service in a sandboxed frame without scripts. It has this origin, so that the frame can
 * be as high as its content, the two scroll together, and the console can print the page. `cut(document)` may remove parts of the page.
 */
export function framed(page, title, className, cut = () => {}) {
  const frame = element("iframe", { class: className, title, sandbox: "allow-same-origin allow-modals" });
  const address = URL.createObjectURL(new Blob([page], { type: "text/html;charset=utf-8" }));
  frame.addEventListener("load", () => {
    URL.revokeObjectURL(address);
    cut(frame.contentDocument);
    const { documentElement: inner, body } = frame.contentDocument;
    const fit = () => {
      frame.style.height = `${body.offsetHeight}px`;
    };
    new ResizeObserver(fit).observe(body);
    inner.style.overflow = "hidden";
    fit();
    fitPaper(frame, fit);
  });
  frame.src = address;
  return frame;
}

/** Fits a frame to paper while the page is printed: a print has another width, at which no observer is called. */
function fitPaper(frame, fit) {
  const printing = (event) => {
    if (!frame.isConnected) {
      for (const name of EVENTS) removeEventListener(name, printing);
      return;
    }
    frame.style.width = event.type === "beforeprint" ? PAPER : "";
    fit();
  };
  for (const name of EVENTS) addEventListener(name, printing);
}

/** Shows the first pictures of fields of a report's page, those that changed; null if the report has none. */
export function picturesOf({ pictures }, page) {
  if (!pictures?.fields?.length) return null;
  return element(
    "section",
    { "aria-labelledby": "pictures" },
    element("h2", { id: "pictures" }, "The fields before and after"),
    framed(page, "The fields before and after", "pictures", (inside) => {
      const fields = inside.querySelector('section[aria-labelledby="fields"]');
      const all = [...fields.querySelectorAll("figure")];
      all.slice(MOST_PICTURES).forEach((figure) => figure.remove());
      fields.querySelectorAll("h2, details, :scope > p").forEach((each) => each.remove());
      const patterns = inside.querySelector("svg.patterns"); // the hatching of the bars
      inside.body.replaceChildren(patterns, fields);
    }),
    pictures.fields.length > MOST_PICTURES
      ? element("p", { class: "quiet" }, "The fields that changed come first; the report below has all.")
      : null,
  );
}
