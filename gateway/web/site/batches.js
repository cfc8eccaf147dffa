/** Batches, newest first, and how far they are. */

import { h } from "./element.js";
import { Listing } from "./listing.js";
import { ENDED } from "./record.js";
import { badge } from "./state.js";
import { Tally, done } from "./tally.js";
import { batchAddress, titled } from "./titles.js";
import { ago, amount } from "./words.js";

/** @param {import("./api.js").Api} api */
export function batches(api) {
  return new Listing(api, {
    path: "/v1/batches",
    title: "Batches",
    lead: "One pipeline over many files; each item is a run of its own.",
    none: "There is no batch yet. Open a pipeline and run it on several files.",
    key: (batch) => batch.batch_id,
    row: () => new BatchRow(),
    moves: (batch) => !ENDED.has(batch.state),
  });
}

class BatchRow {
  constructor() {
    this._tally = new Tally(false);
    this._title = h("strong");
    this._counts = h("small");
    this._state = h("span");
    this._when = h("small");
    const words = h("span.entry-words", {}, this._title, this._tally.element, this._counts);
    this._link = h("a.entry", {}, words, h("span.entry-end", {}, this._state, this._when));
    this.element = h("li", {}, this._link);
  }

  show(batch) {
    this._link.setAttribute("href", batchAddress(batch.batch_id));
    this._title.textContent = titled(batch);
    this._tally.show(batch.counts);
    this._counts.textContent = progress(batch.counts);
    this._when.textContent = batch.create_time ? ago(batch.create_time) : "";
    if (this._shown !== batch.state) this._state.replaceChildren(badge(batch.state));
    this._shown = batch.state;
  }
}

/** @param {any} counts */
function progress(counts) {
  return [
    `${amount(done(counts))} of ${amount(counts.total)} items`,
    ...["failed", "incomplete"].map((state) => counts[state] && `${amount(counts[state])} ${state}`),
  ]
    .filter(Boolean)
    .join(", ");
}
