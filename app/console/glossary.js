// Tooltips with the meaning of a term: by keyboard, touch and mouse, and read by screen readers.

import { element, newId } from "./dom.js";
import { describe, splitAtTerm } from "./words.js";

const GAP = 6; // pixels between a term and its meaning
const PATIENCE = 300; // milliseconds in which the mouse may reach the meaning

const explained = new Set();

/** Starts a new view, in which each term is explained once more. */
export const forgetExplained = () => explained.clear();

/** Places the meaning below its term, within the window. */
function place(tip, term) {
  const { left, bottom, top } = term.getBoundingClientRect();
  const right = document.documentElement.clientWidth - tip.offsetWidth - GAP;
  const below = bottom + GAP + tip.offsetHeight < document.documentElement.clientHeight;
  tip.style.left = `${Math.max(GAP, Math.min(left, right))}px`;
  tip.style.top = `${below ? bottom + GAP : Math.max(GAP, top - GAP - tip.offsetHeight)}px`;
}

function explanation(words, meaning) {
  const id = newId("meaning");
  const tip = element("span", { id, popover: "auto", role: "tooltip", class: "tip" }, `${meaning}.`);
  const term = element(
    "button",
    { type: "button", class: "term", popovertarget: id, popovertargetaction: "show", "aria-describedby": id },
    words,
  );
  const show = () => tip.isConnected && !tip.matches(":popover-open") && tip.showPopover();
  tip.addEventListener("toggle", ({ newState }) => newState === "open" && place(tip, term));
  term.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && show());
  // The mouse may cross the gap to the tip, and stay there to read it.
  let leaving = 0;
  const stay = () => clearTimeout(leaving);
  const leave = ({ pointerType }) => {
    stay();
    if (pointerType === "mouse") leaving = setTimeout(() => tip.isConnected && tip.hidePopover(), PATIENCE);
  };
  for (const node of [term, tip]) {
    node.addEventListener("pointerenter", stay);
    node.addEventListener("pointerleave", leave);
  }
  return [term, tip];
}

/** Returns a description from the API as nodes; terms of the glossary that the view has not explained yet are explained. */
export function glossed(text) {
  const nodes = [];
  let rest = describe(text);
  for (let found = splitAtTerm(rest, explained); found; found = splitAtTerm(rest, explained)) {
    const [before, words, meaning, after] = found;
    nodes.push(before, ...explanation(words, meaning));
    rest = after;
  }
  nodes.push(rest);
  return nodes;
}
