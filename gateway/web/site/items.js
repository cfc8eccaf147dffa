/** Items of a batch in pages: state, result and link to the run of each. */

import { h } from "./element.js";
import { UNEXPLAINED, notice, sentence, withoutCommands } from "./notice.js";
import { ENDED, artifactsOf } from "./record.js";
import { itemFileName } from "./save_files.js";
import { badge, stateLabel } from "./state.js";
import { runAddress } from "./links.js";
import { amount, cut, duration } from "./format.js";

const PAGE = 50;
const PAUSE = 2000;
const LONGEST = 160;
const STATES = ["running", "completed", "incomplete", "failed", "cancelled", "queued"];

/** @typedef {import("../types.js").Item} Item */

export class Items {
  /**
   * @param {import("./api.js").Api} api
   * @param {import("./files.js").Files} files
   * @param {string} batch its id
   */
  constructor(api, files, batch) {
    this._api = api;
    this._files = files;
    this._path = `/v1/pipeline-batches/${encodeURIComponent(batch)}/items`;
    this._closed = new AbortController();
    this._state = "";
    this._starts = [""];
    this._next = "";
    this._known = "";
    this._query = "";
    this._reading = this._stale = false;
    /** @type {Map<number, {now: string, element: HTMLElement}>} */
    this._rows = new Map();
    this._timer = 0;
    this._filters = new Map(["", ...STATES].map((state) => [state, this._filter(state)]));
    this._list = h("ol.items", { "aria-label": "Items" });
    this._status = h("div");
    this._back = h("button.quiet", { type: "button", click: () => this._turn(-1) }, "Earlier items");
    this._on = h("button.quiet", { type: "button", click: () => this._turn(1) }, "Later items");
    this._turns = h("div.row.turns", { hidden: true }, this._back, this._on);
    this.element = h(
      "div",
      {},
      h("div.filters", { role: "group", "aria-label": "Filter items" }, [...this._filters.values()]),
      this._status,
      this._list,
      this._turns,
    );
  }

  close() {
    this._closed.abort();
    clearTimeout(this._timer);
  }

  /** @param {import("../types.js").Counts} counts present counts of the batch; a change reloads the page of items */
  show(counts) {
    for (const [state, button] of this._filters) {
      const count = (state ? counts[countKey(state)] : counts.total) || 0;
      button.hidden = Boolean(state) && !count && state !== this._state;
      button.lastElementChild?.replaceChildren(amount(count));
    }
    this._list.style.setProperty("--digits", String(String(counts.total || 0).length));
    const known = JSON.stringify(counts);
    if (known === this._known) return;
    this._known = known;
    this._soon();
  }

  /** @param {string} state */
  _filter(state) {
    const choose = () => {
      this._state = state;
      this._starts = [""];
      this._read();
    };
    return h(
      "button.filter",
      { type: "button", "aria-pressed": String(!state), click: choose },
      state ? stateLabel(countKey(state)) : "all",
      " ",
      h("span"),
    );
  }

  /** @param {1 | -1} by */
  _turn(by) {
    if (by > 0) this._starts.push(this._next);
    else this._starts.pop();
    this._read();
    this.element.scrollIntoView({ block: "start" });
  }

  /** Reloads at once, but at most every two seconds. */
  _soon() {
    if (this._reading) this._stale = true;
    else this._read();
  }

  async _read() {
    clearTimeout(this._timer);
    Object.assign(this, { _reading: true, _stale: false });
    const parameters = {
      page_token: this._starts.at(-1) || "",
      page_size: String(PAGE),
      ...(this._state && { state: this._state }),
    };
    const query = JSON.stringify(parameters);
    this._query = query;
    try {
      const page = await this._api.json(`${this._path}?${new URLSearchParams(parameters)}`, {
        signal: this._closed.signal,
      });
      if (this._query === query) this._show(page);
    } catch (problem) {
      if (!this._closed.signal.aborted) this._status.replaceChildren(notice(problem));
    }
    this._timer = setTimeout(() => {
      this._reading = false;
      if (this._stale) this._read();
    }, PAUSE);
  }

  /** @param {{data: Item[], next_page_token?: string}} page */
  _show(page) {
    const elements = page.data.map((item) => this._row(item));
    if (
      elements.some((element, at) => element !== this._list.children[at]) ||
      elements.length !== this._list.children.length
    )
      this._list.replaceChildren(...elements);
    this._next = page.next_page_token || "";
    this._back.disabled = this._starts.length === 1;
    this._on.disabled = !this._next;
    this._turns.hidden = this._back.disabled && this._on.disabled;
    this._status.replaceChildren(...(elements.length ? [] : [h("p.none", {}, "No items.")]));
    for (const [state, button] of this._filters) button.setAttribute("aria-pressed", String(state === this._state));
  }

  /**
   * Reuses an unchanged row, which keeps the focus.
   * @param {Item} item
   */
  _row(item) {
    const now = JSON.stringify([item.state, item.run_id]);
    const known = this._rows.get(item.index);
    if (known?.now === now) return known.element;
    const element = row(item, this._files);
    this._rows.set(item.index, { now, element });
    return element;
  }
}

/**
 * Key of an item state in the counts of a batch.
 * @param {string} state
 * @returns {import("./tally.js").CountKey}
 */
function countKey(state) {
  return /** @type {import("./tally.js").CountKey} */ (state === "queued" ? "waiting" : state);
}

/**
 * @param {Item} item
 * @param {import("./files.js").Files} files
 */
function row(item, files) {
  const name = item.name || `item ${item.index}`;
  const seconds = item.usage?.busy;
  return h(
    "li",
    {},
    h("span.number.quiet", {}, item.index),
    h("span.item-name", {}, item.run_id ? h("a", { href: runAddress(item.run_id) }, name) : name),
    badge(countKey(item.state)),
    h("span.item-time.quiet", {}, ENDED.has(item.state) && seconds ? duration(seconds) : ""),
    h("div.item-result", {}, item.failure ? trouble(item.failure) : outcome(item, files)),
  );
}

/** @param {import("../types.js").Failure} failure */
function trouble({ message, remedy }) {
  return [h("span.bad", {}, message || UNEXPLAINED), remedy && h("small", {}, ` ${sentence(withoutCommands(remedy))}`)];
}

/**
 * Outputs to show: JSON only of tasks without text output.
 * @param {Item} item
 * @param {import("./files.js").Files} files
 */
function outcome(item, files) {
  const outputs = item.outputs || {};
  const withText = new Set(
    Object.keys(outputs)
      .filter((name) => typeof outputs[name] === "string")
      .map(task),
  );
  const seen = Object.entries(outputs).filter(([name, value]) => !isJson(value) || !withText.has(task(name)));
  return seen.map(([name, value]) => h("span.output", {}, h("code", {}, name), " ", brief(item, name, value, files)));
}

/**
 * Task prefix of an output's name, if several tasks have outputs.
 * @param {string} output
 */
function task(output) {
  return output.includes(".") ? output.split(".")[0] : "";
}

/** @param {import("../types.js").Value} value */
function isJson(value) {
  return typeof value !== "string" && !(value && typeof value === "object" && "artifact" in value);
}

/**
 * @param {Item} item
 * @param {string} name of the output
 * @param {import("../types.js").Value} value
 * @param {import("./files.js").Files} files
 */
function brief(item, name, value, files) {
  if (typeof value === "string") return cut(value, LONGEST);
  const [artifact] = artifactsOf(value);
  if (artifact) return files.link(artifact, [itemFileName(item, name, artifact)]);
  return cut(JSON.stringify(value && typeof value === "object" && "json" in value ? value.json : value), LONGEST);
}
