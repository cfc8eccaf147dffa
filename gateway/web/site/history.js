/** Earlier runs, newest first, a page at a time. */

import { glyph, h } from "./element.js";
import { look, said, shape } from "./state.js";
import { ago } from "./words.js";

const PAGE = 25;
const PLUS = "M10 4v12M4 10h12";

export class History {
  /**
   * @param {import("./api.js").Api} api
   * @param {HTMLElement} place
   */
  constructor(api, place) {
    this._api = api;
    this._current = "";
    this._next = "";
    this._list = h("ol");
    this._more = h("button.quiet", { type: "button", hidden: true, click: () => this._page(this._next) }, "Older runs");
    this._said = h("p.quiet");
    place.append(
      h("a.new", { href: "/" }, glyph(PLUS), "New request"),
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

  /** @param {string} run the one being looked at; empty: none */
  mark(run) {
    this._current = run;
    for (const link of this._list.querySelectorAll("a")) {
      if (link.dataset.run === run) link.setAttribute("aria-current", "page");
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
  const words = run.spec?.request || "A plan of its own";
  return h(
    "li",
    {},
    h(
      "a",
      { href: `/?run=${encodeURIComponent(run.run_id)}`, "data-run": run.run_id, title: words },
      mark,
      h("span.words", {}, words),
      h("small", {}, ago(run.created)),
    ),
  );
}
