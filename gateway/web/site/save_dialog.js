/** Dialog that saves a plan as a pipeline. */

import { choice } from "./choice.js";
import { h } from "./element.js";
import { notice } from "./notice.js";
import { pipelineAddress } from "./links.js";

const LONGEST = 32;
const NAME = "[a-z][a-z0-9._\\-]{0,62}";

export class SaveDialog {
  /**
   * @param {import("./api.js").Api} api
   * @param {{run_id: string} | {plan: import("../types.js").Task[]}} source
   * @param {string} text text from which a name is suggested
   * @param {(address: string) => void} go called with the address of the pipeline
   */
  constructor(api, source, text, go) {
    this._api = api;
    this._source = source;
    this._go = go;
    this._name = h("input", {
      id: "save-name",
      required: true,
      pattern: NAME,
      maxlength: 63,
      autocomplete: "off",
      spellcheck: "false",
      title: "Lower-case letters, digits, dots, dashes and underscores; a letter first",
      "aria-describedby": "save-name-about",
      value: suggested(text),
    });
    this._description = h("textarea", { id: "save-description", rows: 2, maxlength: 1000 }, text);
    this._pin = h("input", { type: "checkbox" });
    this._local = h("input", { type: "checkbox" });
    this._problems = h("div");
    this._button = h("button.primary", { type: "submit" }, "Save");
    const close = () => this._dialog.close();
    const cancel = h("button.quiet", { type: "button", click: close }, "Cancel");
    const form = h(
      "form",
      { submit: (event) => (event.preventDefault(), this._submit()) },
      h("h2", { id: "save-title" }, "Save this plan"),
      h("p.quiet", {}, "You can run it on other files without planning again."),
      h("label", { for: "save-name" }, "Name"),
      this._name,
      h("p.quiet", { id: "save-name-about" }, "If the name exists, the plan becomes its next version."),
      h("label", { for: "save-description" }, "Description"),
      this._description,
      h(
        "div.choosing",
        {},
        choice(this._pin, "Pin the models", "It always runs on the same models, at the same revisions."),
        choice(this._local, "Process only on this deployment", "No external model receives its inputs or results."),
      ),
      this._problems,
      h("div.row", {}, this._button, cancel),
    );
    /** @type {HTMLDialogElement} */
    this._dialog = h("dialog.save", { "aria-labelledby": "save-title", close: (event) => event.target.remove() }, form);
    document.body.append(this._dialog);
    this._dialog.showModal();
    this._name.select();
  }

  async _submit() {
    this._button.disabled = true;
    try {
      const saved = await this._save();
      this._dialog.close();
      this._go(pipelineAddress({ name: saved.name }));
    } catch (problem) {
      this._problems.replaceChildren(notice(problem));
      this._button.disabled = false;
    }
  }

  _save() {
    const body = {
      ...this._source,
      description: this._description.value.trim(),
      pin_models: this._pin.checked,
      ...(this._local.checked && { policy: "local" }),
    };
    return this._api.json(`/v1/pipelines/${encodeURIComponent(this._name.value)}`, {
      method: "PUT",
      body: JSON.stringify(body),
      headers: { "content-type": "application/json" },
    });
  }
}

/**
 * A pipeline name made from a text; empty if the text has no Latin letters.
 * @param {string} text
 */
function suggested(text) {
  const plain = text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const name = plain.replace(/[^a-z0-9]+/g, "-").replace(/^[^a-z]+|-+$/g, "");
  return name.length > LONGEST ? name.slice(0, Math.max(name.lastIndexOf("-", LONGEST), 1)) : name;
}
