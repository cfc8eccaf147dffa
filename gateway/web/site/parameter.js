/** Form field of a pipeline's parameter: text, or files by picking or dropping. */

import { Problem } from "./api.js";
import { glyph, h } from "./element.js";
import { face } from "./files.js";
import { CLIP } from "./glyphs.js";
import { amount, size } from "./format.js";

/** Number of files that are listed; the rest is counted. */
const SHOWN = 8;

/**
 * @typedef {import("../types.js").Port} Port
 * @typedef {{one: string, written?: boolean, accept: string | null}} Kind one: a value of it, in words
 */

/** @type {Record<string, Kind>} */
const KINDS = {
  text: { one: "text", written: true, accept: null },
  json: { one: "JSON", written: true, accept: ".json,application/json" },
  image: { one: "an image", accept: "image/*,application/pdf" },
  audio: { one: "audio", accept: "audio/*" },
  video: { one: "a video", accept: "video/*" },
  table: { one: "a table", accept: ".csv,.tsv,.xls,.xlsx,.ods" },
};

/**
 * @param {Port} port
 * @returns {Kind}
 */
export function kindOf(port) {
  return KINDS[port.modality || ""] || { one: port.modality || "a value", accept: null };
}

export class Parameter {
  /**
   * @param {Port} port
   * @param {number} number unique number within the form
   * @param {() => void} changed
   */
  constructor(port, number, changed) {
    this.name = port.name;
    /** @type {File[]} */
    this.files = [];
    this._port = port;
    this._kind = kindOf(port);
    this._changed = changed;
    const id = `parameter-${number}`;
    const { accept, written } = this._kind;
    const about = [this._kind.one, !this._port.required && "optional"].filter(Boolean).join(", ");
    this._words = written
      ? h("textarea", { id, rows: 3, "aria-describedby": `${id}-about`, input: () => this._changed() })
      : null;
    this._picker = h("input.unseen", {
      id: `${id}-files`,
      type: "file",
      multiple: true,
      accept,
      "aria-describedby": `${id}-about`,
      change: () => this._picked(),
    });
    this._add = h("span");
    this._many = h("small.quiet");
    this._clear = h("button.link", { type: "button", click: () => this._emptied() }, "Remove all");
    this._chips = h("ul.chips", { "aria-label": `Files for ${this.name}` });
    this.element = h(
      "div.parameter",
      {},
      h(
        "div.parameter-name",
        {},
        h("label", { for: written ? id : `${id}-files` }, this.name),
        h("small", { id: `${id}-about` }, about),
      ),
      this._port.description && h("p.quiet", {}, this._port.description),
      this._words,
      this._chips,
      h(
        "div.row",
        {},
        this._picker,
        h("label.attach", { for: `${id}-files` }, glyph(CLIP), this._add, h("span.unseen", {}, ` for ${this.name}`)),
        this._many,
        this._clear,
      ),
    );
    this._shown();
  }

  /** @param {File[]} files files to add */
  add(files) {
    this.files = [...this.files, ...files];
    this._shown();
  }

  /** @param {Set<File>} files files to remove */
  drop(files) {
    this.files = this.files.filter((file) => !files.has(file));
    this._shown();
  }

  /**
   * The text that was entered, as an input value.
   * @returns {import("../types.js").Value | undefined} undefined if empty
   * @throws {Problem} the text is invalid, or a required value is missing
   */
  get written() {
    const text = this._words && !this._words.hidden ? this._words.value : "";
    if (text.trim()) return this._port.modality === "json" ? { json: this._json(text) } : { text: text };
    if (!this._port.required || this.files.length) return undefined;
    throw new Problem({ detail: `${this.name} is missing.`, remedy: `provide ${this._kind.one}` });
  }

  focus() {
    (this._words && !this._words.hidden ? this._words : this._picker).focus();
  }

  /** @param {string} text */
  _json(text) {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Problem({ detail: `${this.name} is not JSON.`, remedy: error.message });
    }
  }

  _picked() {
    this.add([...(this._picker.files || [])]);
    this._picker.value = "";
  }

  _emptied() {
    this.files = [];
    this._shown();
    this.focus();
  }

  _shown() {
    const { files } = this;
    if (this._words) this._words.hidden = files.length > 0;
    this._chips.replaceChildren(...files.slice(0, SHOWN).map((file) => this._chip(file)));
    const rest = files.length - SHOWN;
    this._many.textContent = rest > 0 ? `and ${amount(rest)} more` : "";
    this._add.textContent = files.length ? "Add files" : this._words ? "Use files instead" : "Choose files";
    this._clear.hidden = files.length < 2;
    this._changed();
  }

  /** @param {File} file */
  _chip(file) {
    const remove = () => {
      this.drop(new Set([file]));
      this.focus();
    };
    return h(
      "li.chip",
      {},
      face(file),
      h("span.chip-words", {}, h("span", {}, file.name), h("small", {}, size(file.size))),
      h("button.icon", { type: "button", "aria-label": `Remove ${file.name}`, click: remove }, "×"),
    );
  }
}
