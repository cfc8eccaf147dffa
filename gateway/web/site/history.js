/** Navigation with the list of earlier runs, newest first, in pages. */

import { glyph, h } from "./element.js";
import { PIPELINE, PLUS, STACK } from "./glyphs.js";
import { stateClass, stateLabel, stateIcon } from "./state.js";
import { runAddress, titleOf } from "./links.js";
import { ago } from "./format.js";

const PAGE = 25;

export class History {
  /**
   * @param {import("./api.js").Api} api
   * @param {HTMLElement} place
   */
  constructor(api, place) {
    this._api = api;
    this._place = place;
    this._current = "";
    this._next = "";
    this._list = h("ol", { "aria-label": "Earlier runs" });
    this._more = h("button.quiet", { type: "button", hidden: true, click: () => this._page(this._next) }, "Older runs");
    this._status = h("p.quiet");
    place.append(
      h("a.new", { href: "/" }, glyph(PLUS), "New request"),
      h("a", { href: "/?pipelines", "data-at": "pipelines" }, glyph(PIPELINE), "Pipelines"),
      h("a", { href: "/?batches", "data-at": "batches" }, glyph(STACK), "Batches"),
      h("h2", {}, "Earlier runs"),
      this._list,
      this._status,
      this._more,
    );
  }

  /** Reloads the first page. */
  async refresh() {
    await this._page("");
  }

  /** @param {string} at id of the shown run or list; empty: none */
  mark(at) {
    this._current = at;
    for (const link of /** @type {NodeListOf<HTMLElement>} */ (this._place.querySelectorAll("[data-at]"))) {
      if (link.dataset.at === at) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  /** @param {string} token */
  async _page(token) {
    const query = new URLSearchParams({ page_size: String(PAGE), ...(token && { page_token: token }) });
    try {
      const page = await this._api.json(`/v1/runs?${query}`);
      const items = page.data.map(item);
      if (token) this._list.append(...items);
      else this._list.replaceChildren(...items);
      this._next = page.next_page_token || "";
      this._more.hidden = !this._next;
      this._status.textContent = this._list.children.length ? "" : "There are no runs yet.";
      this.mark(this._current);
    } catch (problem) {
      this._status.textContent = problem.message;
    }
  }
}

/** @param {import("../types.js").RunSummary} run */
function item(run) {
  const mark = h(
    `span.badge.is-${stateClass(run.state)}`,
    { title: stateLabel(run.state) },
    glyph(stateIcon(run.state)),
    h("span.unseen", {}, stateLabel(run.state)),
  );
  const text = titleOf(run);
  return h(
    "li",
    {},
    h(
      "a",
      { href: runAddress(run.run_id), "data-at": run.run_id, title: text },
      mark,
      h("span.words", {}, text),
      h("small", {}, ago(run.create_time)),
    ),
  );
}
