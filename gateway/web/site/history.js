/** Earlier runs, newest first, a page at a time. */

import { glyph, h } from "./element.js";
import { PIPELINE, PLUS, STACK } from "./glyphs.js";
import { look, said, shape } from "./state.js";
import { runAddress, titled } from "./titles.js";
import { ago } from "./words.js";

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
    this._said = h("p.quiet");
    place.append(
      h("a.new", { href: "/" }, glyph(PLUS), "New request"),
      h("a", { href: "/?pipelines", "data-at": "pipelines" }, glyph(PIPELINE), "Pipelines"),
      h("a", { href: "/?batches", "data-at": "batches" }, glyph(STACK), "Batches"),
      h("h2", {}, "Earlier runs"),
      this._list,
      this._said,
      this._more,
    );
  }

  /** Begins again with the newest. */
  async refresh() {
    await this._page("");
  }

  /** @param {string} at the run or the list being looked at; empty: none */
  mark(at) {
    this._current = at;
    for (const link of this._place.querySelectorAll("[data-at]")) {
      if (link.dataset.at === at) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  async _page(token) {
    const query = new URLSearchParams({ page_size: String(PAGE), ...(token && { page_token: token }) });
    try {
      const page = await this._api.json(`/v1/runs?${query}`);
      const items = page.data.map(item);
      if (token) this._list.append(...items);
      else this._list.replaceChildren(...items);
      this._next = page.next_page_token || "";
      this._more.hidden = !this._next;
      this._said.textContent = this._list.children.length ? "" : "Nothing has been asked yet.";
      this.mark(this._current);
    } catch (problem) {
      this._said.textContent = problem.message;
    }
  }
}

function item(run) {
  const mark = h(
    `span.badge.is-${look(run.state)}`,
    { title: said(run.state) },
    glyph(shape(run.state)),
    h("span.unseen", {}, said(run.state)),
  );
  const words = titled(run);
  return h(
    "li",
    {},
    h(
      "a",
      { href: runAddress(run.run_id), "data-at": run.run_id, title: words },
      mark,
      h("span.words", {}, words),
      h("small", {}, ago(run.create_time)),
    ),
  );
}
