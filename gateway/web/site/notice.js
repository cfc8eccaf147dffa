/** What went wrong, with what helps. */

import { h } from "./element.js";

/**
 * @param {{message: string, remedy?: string, code?: string}} problem
 * @param {() => void} [dismiss] called when it is closed; without it, it stays
 */
export function notice(problem, dismiss) {
  const close = dismiss && h("button.icon", { type: "button", "aria-label": "Dismiss", click: dismiss }, "×");
  const words = h("div", {}, h("p", {}, h("strong", {}, problem.message)), problem.remedy && h("p", {}, sentence(problem.remedy)));
  return h("div.problem", { role: "alert" }, words, problem.code && h("code.quiet", {}, problem.code), close);
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}
