// Button that deletes something, after a question.

import { alarm, element } from "./dom.js";

/**
 * Creates a button that asks in a dialog before it calls `remove`. The dialog begins on its way back, so that
 * no single key deletes anything.
 */
export function deletion(words, question, remove) {
  const said = element("div", {});
  const no = element("button", { type: "button", onclick: () => dialog.close() }, "Keep it");
  const yes = element(
    "button",
    {
      type: "button",
      class: "danger",
      onclick: async () => {
        dialog.close();
        await remove().catch((error) => said.replaceChildren(alarm(error)));
      },
    },
    "Delete it for good",
  );
  const dialog = element(
    "dialog",
    { "aria-label": words },
    element("p", {}, question),
    element("div", { class: "actions" }, no, yes),
  );
  const ask = element(
    "button",
    {
      type: "button",
      class: "danger",
      onclick: () => {
        dialog.showModal();
        no.focus();
      },
    },
    words,
  );
  return element("div", {}, ask, dialog, said);
}
