/** Progress of a batch: a bar with a segment per state, and the counts as text. */

import { glyph, h } from "./element.js";
import { stateClass, stateLabel, stateIcon } from "./state.js";
import { amount } from "./format.js";

/** @typedef {"completed" | "incomplete" | "failed" | "cancelled" | "running" | "waiting"} CountKey */

/**
 * States in the order of the bar; queued items are the rest of it.
 * @type {CountKey[]}
 */
const PIECES = ["completed", "incomplete", "failed", "cancelled", "running"];
const DONE = PIECES.slice(0, -1);

/** @param {import("../types.js").Counts} counts of a batch */
export function done(counts) {
  return DONE.reduce((sum, state) => sum + (counts[state] || 0), 0);
}

export class Tally {
  /** @param {boolean} whole whether the counts are shown as text below the bar */
  constructor(whole) {
    this._pieces = new Map(PIECES.map((state) => [state, h(`span.is-${stateClass(state)}`)]));
    this._bar = h(
      "div.tally",
      { role: "progressbar", "aria-label": "Items that have ended", "aria-valuemin": 0 },
      ...this._pieces.values(),
    );
    this._words = whole ? h("ul.states") : null;
    this.element = h("div.tallied", {}, this._bar, this._words);
  }

  /** @param {import("../types.js").Counts} counts */
  show(counts) {
    const total = counts.total || 0;
    for (const [state, piece] of this._pieces) {
      piece.hidden = !counts[state];
      piece.style.setProperty("--share", String((counts[state] || 0) / Math.max(total, 1)));
    }
    this._bar.setAttribute("aria-valuemax", String(total));
    this._bar.setAttribute("aria-valuenow", String(done(counts)));
    this._bar.setAttribute("aria-valuetext", `${amount(done(counts))} of ${amount(total)}`);
    this._words?.replaceChildren(
      .../** @type {CountKey[]} */ ([...PIECES, "waiting"]).flatMap((state) => part(state, counts[state] || 0)),
    );
  }
}

/**
 * @param {string} state
 * @param {number} count
 */
function part(state, count) {
  if (!count) return [];
  return h(
    `li.badge.is-${stateClass(state)}`,
    {},
    glyph(stateIcon(state)),
    h("span", {}, `${amount(count)} ${stateLabel(state)}`),
  );
}
