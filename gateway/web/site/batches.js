/** List of batches with their progress, newest first. */

import { h } from "./element.js";
import { Listing } from "./listing.js";
import { ENDED } from "./record.js";
import { badge } from "./state.js";
import { Tally, done } from "./tally.js";
import { batchAddress, titleOf } from "./links.js";
import { ago, amount } from "./format.js";

/** @param {import("./api.js").Api} api */
export function batches(api) {
  return new Listing(api, {
    path: "/v1/pipeline-batches",
    title: "Batches",
    lead: "One pipeline run on many inputs. Each item is a run of its own.",
    none: "There is no batch yet. Send a request with several files and choose “Run once per file”, or run a pipeline on them.",
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
    this._shown = "";
    this._when = h("small");
    const text = h("span.entry-words", {}, this._title, this._tally.element, this._counts);
    this._link = h("a.entry", {}, text, h("span.entry-end", {}, this._state, this._when));
    this.element = h("li", {}, this._link);
  }

  /** @param {import("../types.js").Batch} batch */
  show(batch) {
    this._link.setAttribute("href", batchAddress(batch.batch_id));
    this._title.textContent = titleOf(batch);
    this._tally.show(batch.counts);
    this._counts.textContent = progress(batch.counts);
    this._when.textContent = batch.create_time ? ago(batch.create_time) : "";
    if (this._shown !== batch.state) this._state.replaceChildren(badge(batch.state));
    this._shown = batch.state;
  }
}

/** @param {import("../types.js").Counts} counts */
function progress(counts) {
  return [
    `${amount(done(counts))} of ${amount(counts.total)} items`,
    .../** @type {("failed" | "incomplete")[]} */ (["failed", "incomplete"]).map(
      (state) => counts[state] && `${amount(counts[state])} ${state}`,
    ),
  ]
    .filter(Boolean)
    .join(", ");
}
