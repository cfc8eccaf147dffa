/** Error messages with remedies. */

import { h } from "./element.js";

/**
 * @param {{message: string, remedy?: string, code?: string, mild?: boolean}} problem
 * @param {() => void} [dismiss] called when the message is dismissed; without it, the message cannot be dismissed
 */
export function notice(problem, dismiss) {
  const close = dismiss && h("button.icon", { type: "button", "aria-label": "Dismiss", click: dismiss }, "×");
  const text = h(
    "div",
    {},
    h("p", {}, h("strong", {}, spoken(problem.message))),
    problem.remedy && h("p", {}, spoken(sentence(problem.remedy))),
  );
  return h(
    problem.mild ? "div.problem.mild" : "div.problem",
    { role: "alert" },
    text,
    problem.code && h("code.quiet", {}, problem.code),
    close,
  );
}

/**
 * Renders a message; text in backticks becomes code.
 * @param {string} text
 */
export function spoken(text) {
  return text.split(/`([^`\n]+)`/).map((part, at) => (at % 2 ? h("code", {}, part) : part));
}

/** @param {string} text */
export function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}
