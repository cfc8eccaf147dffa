/** The tasks that the deployment offers, each with an example of a request for it. */

import { h } from "./element.js";
import { notice } from "./notice.js";

export class TaskCatalog {
  /**
   * @param {import("./api.js").Api} api
   * @param {(example: string) => void} choose called with the example that was selected
   */
  constructor(api, choose) {
    this._api = api;
    this._choose = choose;
    this._content = h("div");
    this.element = h("div.catalog", {}, this._content);
    this._read();
  }

  async _read() {
    try {
      const { data } = await this._api.json("/v1/tasks");
      this._content.replaceChildren(
        data.length
          ? h(
              "ul.offers",
              { "aria-label": "Available tasks" },
              data.map((/** @type {import("../types.js").TaskType} */ task) => h("li", {}, this._offer(task))),
            )
          : h("p.quiet", {}, "No expert is available now, so no task can be planned. Try again in a minute."),
      );
    } catch (problem) {
      this._content.replaceChildren(notice(/** @type {import("./api.js").Problem} */ (problem)));
    }
  }

  /** @param {import("../types.js").TaskType} task */
  _offer({ name, description, examples = [] }) {
    const [example] = examples;
    const text = [h("strong", {}, name), h("span", {}, description), example && h("q", {}, example)];
    return example
      ? h("button.offer", { type: "button", click: () => this._choose(example) }, text)
      : h("div.offer", {}, text);
  }
}
