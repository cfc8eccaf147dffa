/** Asks under which name a plan is to be kept, and keeps it. */

import { choice } from "./choice.js";
import { h } from "./element.js";
import { notice } from "./notice.js";
import { pipelineAddress } from "./titles.js";

const LONGEST = 32;
const NAME = "[a-z][a-z0-9._\\-]{0,62}";

export class KeepDialog {
  /**
   * @param {import("./api.js").Api} api
   * @param {{run_id: string} | {plan: any[]}} source
   * @param {string} words that the name may be made of
   * @param {(address: string) => void} go called with where the pipeline is seen
   */
  constructor(api, source, words, go) {
    this._api = api;
    this._source = source;
    this._go = go;
    this._fields(words);
    this._build();
    document.body.append(this._dialog);
    this._dialog.showModal();
    this._name.select();
  }

  _fields(words) {
    this._name = h("input", {
      id: "keep-name",
      required: true,
      pattern: NAME,
      maxlength: 63,
      autocomplete: "off",
      spellcheck: "false",
      title: "Lower-case letters, digits, dots, dashes and underscores; a letter first",
      "aria-describedby": "keep-name-about",
      value: suggested(words),
    });
    this._description = h("textarea", { id: "keep-description", rows: 2, maxlength: 1000 }, words);
    this._pin = h("input", { type: "checkbox" });
    this._local = h("input", { type: "checkbox" });
    this._problems = h("div");
    this._button = h("button.primary", { type: "submit" }, "Keep it");
  }

  _build() {
    const cancel = h("button.quiet", { type: "button", click: () => this._dialog.close() }, "Cancel");
    const form = h(
      "form",
      { submit: (event) => (event.preventDefault(), this._submit()) },
      h("h2", { id: "keep-title" }, "Keep this plan"),
      h("p.quiet", {}, "It can be run again on other files, without being planned again."),
      h("label", { for: "keep-name" }, "Name"),
      this._name,
      h("p.quiet", { id: "keep-name-about" }, "Under a name that is taken it becomes the next version."),
      h("label", { for: "keep-description" }, "What it does"),
      this._description,
      h(
        "div.choosing",
        {},
        choice(this._pin, "Pin the models", "It always runs on the same models, at the same revisions."),
        choice(this._local, "Keep everything in this house", "No model elsewhere ever sees what runs through it."),
      ),
      this._problems,
      h("div.row", {}, this._button, cancel),
    );
    this._dialog = h("dialog.keep", { "aria-labelledby": "keep-title", close: () => this._dialog.remove() }, form);
  }

  async _submit() {
    this._button.disabled = true;
    try {
      const kept = await this._kept();
      this._dialog.close();
      this._go(pipelineAddress({ name: kept.name }));
    } catch (problem) {
      this._problems.replaceChildren(notice(problem));
      this._button.disabled = false;
    }
  }

  _kept() {
    const asked = {
      ...this._source,
      description: this._description.value.trim(),
      pin_models: this._pin.checked,
      ...(this._local.checked && { policy: "local" }),
    };
    return this._api.json(`/v1/pipelines/${encodeURIComponent(this._name.value)}`, {
      method: "PUT",
      body: JSON.stringify(asked),
      headers: { "content-type": "application/json" },
    });
  }
}

/** Words as a name; empty where they have no letter of the alphabet. */
function suggested(words) {
  const plain = words.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const name = plain.replace(/[^a-z0-9]+/g, "-").replace(/^[^a-z]+|-+$/g, "");
  return name.length > LONGEST ? name.slice(0, Math.max(name.lastIndexOf("-", LONGEST), 1)) : name;
}
