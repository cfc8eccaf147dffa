/** A list of pipelines or batches in pages, which refreshes while entries change. */

import { h } from "./element.js";
import { notice } from "./notice.js";

const PAGE = 50;
const MOST = 1000;
const PAUSE = 2000;

/**
 * @typedef {{element: HTMLElement, show: (each: any) => void}} Row
 * @typedef {{path: string, title: string, lead: string, none: string, key: (each: any) => string, row: () => Row,
 *   moves: (each: any) => boolean}} Kind row: creates a row; moves: whether an entry changes by itself
 */

export class Listing {
  /**
   * @param {import("./api.js").Api} api
   * @param {Kind} kind
   */
  constructor(api, kind) {
    this._api = api;
    this._kind = kind;
    /** @type {Map<string, Row>} */
    this._rows = new Map();
    this._next = "";
    this._timer = 0;
    this._closed = new AbortController();
    this._list = h("ol.listing", { "aria-label": kind.title });
    this._status = h("div");
    this._more = h("button.quiet", { type: "button", hidden: true, click: () => this._read(this._next) }, "More");
    this.element = h(
      "section.list-page",
      {},
      h("header", {}, h("h1", {}, kind.title), h("p.lead", {}, kind.lead)),
      this._status,
      this._list,
      this._more,
    );
    document.title = `${kind.title} · HuggingGPT`;
    this._read("");
  }

  close() {
    this._closed.abort();
    clearTimeout(this._timer);
  }

  /** @param {string} token page token; empty: reload all that is shown */
  async _read(token) {
    clearTimeout(this._timer);
    const wanted = token ? PAGE : Math.min(Math.max(PAGE, this._list.children.length), MOST);
    const query = new URLSearchParams({ page_size: String(wanted), ...(token && { page_token: token }) });
    try {
      const page = await this._api.json(`${this._kind.path}?${query}`, { signal: this._closed.signal });
      this._show(page, token);
    } catch (problem) {
      if (!this._closed.signal.aborted) this._status.replaceChildren(notice(problem));
    }
  }

  /**
   * @param {{data: any[], next_page_token?: string}} page
   * @param {string} token
   */
  _show(page, token) {
    const elements = page.data.map((each) => this._row(each));
    if (token) this._list.append(...elements);
    else if (elements.some((element, at) => element !== this._list.children[at]))
      this._list.replaceChildren(...elements);
    this._next = page.next_page_token || "";
    this._more.hidden = !this._next;
    this._status.replaceChildren(...(this._list.children.length ? [] : [h("p.none", {}, this._kind.none)]));
    if (page.data.some(this._kind.moves)) this._timer = setTimeout(() => this._read(""), PAUSE);
  }

  /** @param {any} each a pipeline or a batch */
  _row(each) {
    const key = this._kind.key(each);
    const row = this._rows.get(key) || this._kind.row();
    this._rows.set(key, row);
    row.show(each);
    return row.element;
  }
}
