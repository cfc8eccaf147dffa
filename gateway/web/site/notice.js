/** Error messages with remedies. */

import { h } from "./element.js";

export const UNEXPLAINED = "The server gave no reason.";

/** A command of the command line, or a route of the API. */
const COMMAND = /`hugginggpt |\b(?:GET|HEAD|POST|PUT|PATCH|DELETE) \/|\/v1\//;

/**
 * @param {{message?: string, remedy?: string, mild?: boolean}} problem
 * @param {() => void} [dismiss] called when the message is dismissed; without it, the message cannot be dismissed
 */
export function notice(problem, dismiss) {
  const remedy = withoutCommands(problem.remedy || "");
  const close = dismiss && h("button.icon", { type: "button", "aria-label": "Dismiss", click: dismiss }, "×");
  const text = h(
    "div",
    {},
    h("p", {}, h("strong", {}, spoken(withoutCommands(problem.message || "") || UNEXPLAINED))),
    remedy && h("p", {}, spoken(sentence(remedy))),
  );
  return h(problem.mild ? "div.problem.mild" : "div.problem", { role: "alert" }, text, close);
}

/**
 * Renders a message; text in backticks becomes code.
 * @param {string} text
 */
export function spoken(text) {
  return text.split(/`([^`\n]+)`/).map((part, at) => (at % 2 ? h("code", {}, part) : part));
}

/**
 * Leaves out clauses that name a command or a route, which visitors of the page may not have.
 * @param {string} text
 */
export function withoutCommands(text) {
  if (!COMMAND.test(text)) return text;
  return text
    .split(/(?<=[.!?])\s+/)
    .map((each) => {
      const clauses = each.split(/(?<=[:;,])\s+/).filter((clause) => !COMMAND.test(clause));
      const rest = clauses.join(" ");
      return /[:;,]$/.test(rest) ? rest.slice(0, -1) + (/[.!?]$/.exec(each)?.[0] || "") : rest;
    })
    .filter(Boolean)
    .join(" ");
}

/** @param {string} text */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
