/** What went wrong, with what helps. */

import { h } from "./element.js";

/**
 * @param {{message: string, remedy?: string, code?: string, mild?: boolean}} problem
 * @param {() => void} [dismiss] called when it is closed; without it, it stays
 */
export function notice(problem, dismiss) {
  const close = dismiss && h("button.icon", { type: "button", "aria-label": "Dismiss", click: dismiss }, "×");
  const words = h(
    "div",
    {},
    h("p", {}, h("strong", {}, spoken(problem.message))),
    problem.remedy && h("p", {}, spoken(sentence(problem.remedy))),
  );
  return h(
    problem.mild ? "div.problem.mild" : "div.problem",
    { role: "alert" },
    words,
    problem.code && h("code.quiet", {}, problem.code),
    close,
  );
}

/**
 * What the house says of itself, with its commands set apart.
 * @param {string} text
 */
export function spoken(text) {
  return text.split(/`([^`\n]+)`/).map((part, at) => (at % 2 ? h("code", {}, part) : part));
}

/** @param {string} text */
export function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}
