/** Form for a request: text, and files by picking, dropping or pasting. */

import { Problem, randomId } from "./api.js";
import { choice } from "./choice.js";
import { dropping } from "./drop_target.js";
import { glyph, h } from "./element.js";
import { face } from "./files.js";
import { ARROW, CLIP, PAPER } from "./glyphs.js";
import { amount, cut, size } from "./format.js";
import { batchAddress, runAddress } from "./links.js";
import { Uploads } from "./upload.js";

/**
 * @typedef {import("../types.js").Input} Input
 * @typedef {import("./record.js").RunRecord} RunRecord
 */

/**
 * @typedef {{parent?: RunRecord | null, text?: string, inputs?: Input[]}} Start the run that a request continues; text and
 *   inputs of a run to repeat
 */

export class Composer {
  /**
   * @param {import("./api.js").Api} api
   * @param {{started: (address: string) => void, failed: (problem: Problem) => void}} listener started: called with the
   *   address of the run or batch
   */
  constructor(api, listener) {
    this._api = api;
    this._listener = listener;
    /** @type {File[]} */
    this._files = [];
    /** @type {Input[]} */
    this._inputs = [];
    /** @type {RunRecord | null} */
    this._parent = null;
    this._attempt = "";
    this._uploads = new Uploads(api);
    const [pick, text] = ["pick-files", "request"];
    this._words = h("textarea", {
      id: text,
      rows: 2,
      input: () => this._changed(),
      keydown: (event) => this._key(event),
    });
    this._picker = h("input.unseen", { id: pick, type: "file", multiple: true, change: () => this._picked() });
    this._chips = h("ul.chips", { "aria-label": "Files to send" });
    this._continues = h("p.continues", { hidden: true });
    this._button = h("button.primary.send", { type: "submit", "aria-label": "Ask" }, glyph(ARROW));
    this._hint = h("small.hint", { role: "status" });
    const box = () => h("input", { type: "checkbox" });
    this._boxes = { approve: box(), local: box(), fresh: box() };
    const choices = [
      choice(this._boxes.approve, "Review the plan first", "The plan runs after your approval."),
      choice(
        this._boxes.local,
        "Process only on this deployment",
        "No external model receives the request or its files.",
      ),
      choice(this._boxes.fresh, "Ignore cached results", "Every task runs again."),
    ];
    this._each = h("input", { type: "checkbox", change: () => this._changed() });
    this._eachChoice = choice(this._each, "Run once per file", "Starts a batch with one item per file.");
    this._options = h("details.choices", {}, h("summary", {}, "Options"), h("div", {}, choices));
    this.element = h(
      "form.composer",
      { submit: (event) => (event.preventDefault(), this._send()) },
      this._continues,
      h("label.unseen", { for: text }, "Your request"),
      this._words,
      this._chips,
      this._eachChoice,
      h(
        "div.row",
        {},
        this._picker,
        h("label.attach", { for: pick }, glyph(CLIP), "Add files"),
        this._options,
        h("span.grow"),
        this._hint,
        this._button,
      ),
    );
    this._busy(false);
    this.reset();
    addEventListener(
      "click",
      (event) => (event.target instanceof Node && this._options.contains(event.target)) || this._shut(),
    );
    this._options.addEventListener("keydown", (event) => event.key === "Escape" && this._shut());
    addEventListener("paste", (event) => this._pasted(event));
    dropping(
      () => this.element.isConnected,
      (files) => this._add(files),
    );
  }

  /**
   * Resets the form.
   * @param {Start} [start]
   */
  reset({ parent = null, text = "", inputs = [] } = {}) {
    this._parent = parent;
    this._words.value = text;
    this._inputs = inputs;
    this._files = [];
    this._each.checked = false;
    this._shut();
    this._boxes.fresh.checked = Boolean(text || inputs.length);
    this._words.placeholder = parent ? "Your follow-up request" : "Describe the task, and drop files here.";
    this._changed();
  }

  focus() {
    this._words.focus();
  }

  /**
   * Fills in an example; chosen files stay.
   * @param {string} text
   */
  suggest(text) {
    this._words.value = text;
    this._changed();
    this.focus();
  }

  /**
   * Fills in a request and sends it.
   * @param {string} text
   * @param {File[]} files
   */
  async ask(text, files) {
    this.reset({ text });
    this._files = files;
    this._changed();
    await this._send();
  }

  _shut() {
    this._options.open = false;
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this._send();
  }

  _picked() {
    this._add([...(this._picker.files || [])]);
    this._picker.value = "";
  }

  /** @param {ClipboardEvent} event */
  _pasted(event) {
    const files = [...(event.clipboardData?.files || [])];
    if (!files.length || !this.element.isConnected) return;
    event.preventDefault();
    this._add(files);
  }

  /** @param {File[]} files */
  _add(files) {
    this._files.push(...files);
    this._changed();
    this._words.focus();
  }

  _changed() {
    this._attempt = "";
    const inputs = this._inputs.map(({ artifact, name }, at) =>
      this._chip(artifact?.name || name, artifact?.size_bytes, glyph(PAPER), this._inputs, at),
    );
    const files = this._files.map((file, at) => this._chip(file.name, file.size, face(file), this._files, at));
    this._chips.replaceChildren(...inputs, ...files);
    this._eachChoice.hidden = this._files.length < 2 || this._parent !== null;
    this._boxes.approve.disabled = this._isBatch;
    this._continues.hidden = !this._parent;
    this._continues.replaceChildren("Continues ", h("q", {}, cut(this._parent?.spec.request || "", 80)));
    this._words.style.setProperty("height", "auto");
    this._words.style.setProperty("height", `${Math.min(this._words.scrollHeight, 320)}px`);
  }

  /**
   * @param {string} name
   * @param {number | undefined} bytes
   * @param {import("./element.js").Child} picture
   * @param {unknown[]} list of which it is one
   * @param {number} at
   */
  _chip(name, bytes, picture, list, at) {
    const remove = () => {
      list.splice(at, 1);
      this._changed();
      this._words.focus();
    };
    const button = h("button.icon", { type: "button", "aria-label": `Remove ${name}`, click: remove }, "×");
    return h(
      "li.chip",
      {},
      picture,
      h("span.chip-words", {}, h("span", {}, name), bytes !== undefined && h("small", {}, size(bytes))),
      button,
    );
  }

  async _send() {
    if ((!this._words.value.trim() && !this._files.length && !this._inputs.length) || this._button.disabled) return;
    this._attempt ||= randomId();
    this._busy(true);
    try {
      const address = await (this._isBatch ? this._startBatch() : this._startRun());
      this.reset();
      this._listener.started(address);
    } catch (problem) {
      this._listener.failed(problem);
    } finally {
      this._busy(false);
    }
  }

  /** Whether each file becomes an item of a batch. */
  get _isBatch() {
    return this._each.checked && !this._eachChoice.hidden;
  }

  async _startRun() {
    const headers = { "idempotency-key": this._attempt };
    const run = await this._api.json("/v1/runs", { method: "POST", body: this._body(), headers });
    return runAddress(run.run_id);
  }

  /** Uploads the files and starts a batch, whose request is planned once. */
  async _startBatch() {
    const request = this._words.value.trim();
    if (!request)
      throw new Problem({ detail: "The request is missing.", remedy: "say what is to be done with each file" });
    const all = this._files.length;
    await this._uploads.send(
      this._files,
      (sent) => (this._hint.textContent = `Sending… ${amount(sent)} of ${amount(all)}`),
    );
    const items = this._files.map((file) => ({ name: file.name, ...this._uploads.item(file) }));
    const lines = [{ request, ...this._settings() }, ...items].map((line) => `${JSON.stringify(line)}\n`);
    const headers = { "content-type": "application/x-ndjson", "idempotency-key": this._attempt };
    const batch = await this._api.json("/v1/pipeline-batches", { method: "POST", body: new Blob(lines), headers });
    return batchAddress(batch.batch_id);
  }

  /** @param {boolean} on */
  _busy(on) {
    this._button.disabled = on;
    this._hint.textContent = on ? "Sending…" : "Press Enter to send";
    this.element.setAttribute("aria-busy", String(on));
  }

  _settings() {
    return {
      ...(this._boxes.local.checked && { policy: "local" }),
      ...(this._boxes.fresh.checked && { bypass_memo: true }),
    };
  }

  _body() {
    const spec = {
      request: this._words.value.trim(),
      ...(this._boxes.approve.checked && { mode: "approve" }),
      ...this._settings(),
      ...(this._inputs.length && { inputs: this._inputs.map(({ name, ...value }) => value) }),
      ...(this._parent && { parent_run_id: this._parent.id }),
    };
    const body = new FormData();
    body.append("spec", JSON.stringify(spec));
    this._files.forEach((file) => body.append("file", file, file.name));
    return body;
  }
}
