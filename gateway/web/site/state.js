/** Icons and labels of states, so that colour is never the only difference. */

import { glyph, h } from "./element.js";

/** @type {Record<string, string>} */
const SHAPES = {
  planned: "M10 7a3 3 0 1 1 0 6 3 3 0 0 1 0-6",
  waiting: "M10 5v5l3.5 2M10 2.5a7.5 7.5 0 1 1 0 15 7.5 7.5 0 0 1 0-15",
  running: "M10 3a7 7 0 1 1-7 7",
  succeeded: "M4.5 10.5l3.5 3.5 7.5-8",
  reused: "M5 8a5.5 5.5 0 0 1 10 0M15.5 4v4h-4M15 12a5.5 5.5 0 0 1-10 0M4.5 16v-4h4",
  failed: "M5.5 5.5l9 9M14.5 5.5l-9 9",
  skipped: "M4 5l6 5-6 5M11 5l5 5-5 5",
  cancelled: "M10 2.5a7.5 7.5 0 1 1 0 15 7.5 7.5 0 0 1 0-15M5 15L15 5",
};

/** @type {Record<string, string>} */
const LIKE = {
  queued: "waiting",
  awaiting_approval: "waiting",
  completed: "succeeded",
  incomplete: "skipped",
  open: "planned",
  pinned: "planned",
};

/** @type {Record<string, string>} */
const LABELS = { awaiting_approval: "awaiting approval", planned: "planned", open: "any model" };

/** @param {string} state of a task or a run */
export function stateIcon(state) {
  return SHAPES[LIKE[state] || state] || SHAPES.planned;
}

/** @param {string} state */
export function stateClass(state) {
  return LIKE[state] || state;
}

/** @param {string} state */
export function stateLabel(state) {
  return LABELS[state] || state;
}

/** @param {string} state */
export function badge(state) {
  return h(`span.badge.is-${stateClass(state)}`, {}, glyph(stateIcon(state)), h("span", {}, stateLabel(state)));
}
