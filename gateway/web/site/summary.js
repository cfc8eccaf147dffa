/** Summary of a batch: durations of its items, and errors grouped by cause. */

import { h } from "./element.js";
import { UNEXPLAINED, spoken } from "./notice.js";
import { amount, plural, duration } from "./format.js";

/**
 * Renders the errors.
 * @param {import("../types.js").Summary} summary
 * @returns {HTMLElement | null}
 */
export function errors({ errors: groups = [] }) {
  return groups.length ? h("ol.errors", {}, groups.map(group)) : null;
}

/**
 * Renders the durations.
 * @param {import("../types.js").Summary} summary
 * @returns {HTMLElement | null}
 */
export function times({ seconds = {}, slowest = [], ...summary }) {
  if (!slowest.length) return null;
  const tokens = [
    summary.input_tokens && `${plural(summary.input_tokens, "input token")}`,
    summary.output_tokens && `${plural(summary.output_tokens, "output token")}`,
  ].filter(Boolean);
  /** @type {[string, string][]} */
  const facts = [];
  if (seconds.median !== undefined) facts.push(["median", duration(seconds.median)]);
  if (seconds.p95 !== undefined) facts.push(["95th percentile", duration(seconds.p95)]);
  /** @type {[string, string][]} */
  const last = slowest.map(({ index, name, seconds: took }) => [name || `item ${index}`, duration(took)]);
  return h(
    "div.times-body",
    {},
    listed(facts),
    h("h3", {}, "Slowest"),
    listed(last),
    h("p.quiet", {}, tokens.length ? tokens.join(", ") : "No LLM tokens were used."),
    summary.cost ? h("p.quiet", {}, `Cost: ${Number(summary.cost.toPrecision(4))}`) : null,
  );
}

/** @param {[string, string][]} facts */
function listed(facts) {
  return h(
    "dl",
    {},
    facts.flatMap(([what, much]) => [h("dt", {}, what), h("dd", {}, much)]),
  );
}

/** @param {{message?: string, count: number, names?: string[]}} errors of one cause */
function group({ message, count, names = [] }) {
  const rest = count - names.length;
  return h(
    "li",
    {},
    h("p", {}, h("strong", {}, `${amount(count)} ×`), " ", spoken(message || UNEXPLAINED)),
    h("small", {}, names.join(", "), rest > 0 && ` and ${amount(rest)} more`),
  );
}
