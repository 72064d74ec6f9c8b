// Dialog for the access key, which is kept only in this tab and sent with every request.

import { element, newId, prose } from "./dom.js";
import * as session from "./session.js";

let open = null;

/** Resolves to whether a key was given. Concurrent rejected requests share one dialog. */
export function askForKey(why) {
  open ??= dialogue(why).finally(() => {
    open = null;
  });
  return open;
}

function dialogue(why) {
  const id = newId("key");
  const input = element("input", {
    id,
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    "aria-describedby": why ? `${id}-why ${id}-about` : `${id}-about`,
  });
  const dialog = element(
    "dialog",
    { "aria-labelledby": `${id}-title` },
    element(
      "form",
      { method: "dialog" },
      element("h2", { id: `${id}-title` }, "Access key"),
      why ? element("p", { id: `${id}-why`, class: "quiet" }, prose(why)) : null,
      element("label", { for: id }, "Key"),
      input,
      element(
        "p",
        { id: `${id}-about`, class: "quiet" },
        "Kept in this tab until it is closed, and sent only to this service. Empty: no key.",
      ),
      element(
        "div",
        { class: "actions" },
        element("button", { value: "use", class: "primary" }, "Use this key"),
        element("button", { value: "", formnovalidate: true }, "Cancel"),
      ),
    ),
  );
  document.body.append(dialog);
  const answered = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const used = dialog.returnValue === "use";
      if (used) session.setKey(input.value.trim());
      dialog.remove();
      document.dispatchEvent(new Event("keychanged"));
      resolve(used && session.key() !== "");
    });
  });
  dialog.showModal();
  return answered;
}
