// Form that runs an ended job again.

import * as api from "../api.js";
import { alarm, element, newId, shown, whileDisabled } from "../dom.js";
import { navigateUnlessLeft } from "../router.js";
import * as session from "../session.js";
import { counted } from "../format.js";

/** Creates the form that reruns an ended job with the same parameters and the sealed seed, on the retained source or on a table. */
export function rerun(job) {
  const unnamed = job.kind === "measures" || (job.kind === "attacks" && !job.parameters.job);
  if (unnamed) return null;
  const tables = session.tables();
  const same = tables.find((one) => one.digest === job.source.digest);
  const source = element(
    "select",
    { id: newId("source") },
    element("option", { value: "" }, "its own source, while it is kept"),
    tables.map((one) =>
      element(
        "option",
        { value: one.id },
        `${shown(one.name)}, ${counted(one.row_count, "row")}${one === same ? " (the same rows)" : ""}`,
      ),
    ),
  );
  source.value = same?.id ?? "";
  const said = element("div", { "aria-live": "polite" });
  const again = element("button", {}, "Run again");
  const create = api.postOnce();
  const submit = async (event) => {
    event.preventDefault();
    said.replaceChildren(element("p", { class: "quiet" }, "Submitting …"));
    await whileDisabled(again, send);
  };
  const send = async () => {
    const proceed = navigateUnlessLeft();
    try {
      const body = source.value ? { source: { buffer: source.value } } : {};
      const made = await create(`v1/jobs/${encodeURIComponent(job.id)}/rerun`, body, { prefer: "respond-async" });
      proceed("jobs", made.id);
    } catch (error) {
      const problem = alarm(error);
      if (error.status === 409 && !source.value)
        problem.append(
          element("p", {}, element("a", { href: "#/" }, "Upload the job's table again"), ", come back, and choose it next to “On”."),
        );
      said.replaceChildren(problem);
    }
  };
  return element(
    "section",
    { "aria-labelledby": "rerun", class: "panel unprinted" },
    element("h2", { id: "rerun" }, "Run again"),
    element(
      "p",
      {},
      "A rerun takes the same parameters and the same sealed seed, and must give the same bytes.",
    ),
    element(
      "form",
      { class: "inline", onsubmit: submit },
      element("label", { for: source.id }, "On"),
      source,
      again,
    ),
    said,
  );
}
