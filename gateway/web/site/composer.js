/** Form for a request: text, and files by picking, dropping or pasting. */

import { randomId } from "./api.js";
import { choice } from "./choice.js";
import { dropping } from "./drop_target.js";
import { glyph, h } from "./element.js";
import { face } from "./files.js";
import { ARROW, CLIP, PAPER } from "./glyphs.js";
import { cut, size } from "./format.js";

const CHOICES = [
  ["approve", "Review the plan first", "The plan runs after your approval."],
  ["local", "Process only on this deployment", "No external model receives the request or its files."],
  ["fresh", "Ignore cached results", "Every task runs again."],
];

export class Composer {
  /**
   * @param {import("./api.js").Api} api
   * @param {{started: (run: string) => void, failed: (problem: Error) => void}} listener
   */
  constructor(api, listener) {
    this._api = api;
    this._listener = listener;
    this._files = [];
    this._inputs = [];
    this._parent = null;
    this._attempt = "";
    this._build();
    addEventListener("paste", (event) => this._pasted(event));
    dropping(
      () => this.element.isConnected,
      (files) => this._add(files),
    );
  }

  /**
   * Resets the form.
   * @param {{parent?: any, text?: string, inputs?: any[]}} [from] the run that it continues; text and inputs of a run to
   *   repeat
   */
  reset({ parent = null, text = "", inputs = [] } = {}) {
    this._parent = parent;
    this._words.value = text;
    this._inputs = inputs;
    this._files = [];
    this._shut();
    this._choices.get("fresh").checked = Boolean(text || inputs.length);
    this._words.placeholder = parent ? "Your follow-up request" : "Describe the task, and drop files here.";
    this._changed();
  }

  focus() {
    this._words.focus();
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

  _build() {
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
    this._choices = new Map(CHOICES.map(([name]) => [name, h("input", { type: "checkbox" })]));
    const choices = CHOICES.map(([name, title, about]) => choice(this._choices.get(name), title, about));
    this._options = h("details.choices", {}, h("summary", {}, "Options"), h("div", {}, choices));
    this.element = h(
      "form.composer",
      { submit: (event) => (event.preventDefault(), this._send()) },
      this._continues,
      h("label.unseen", { for: text }, "Your request"),
      this._words,
      this._chips,
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
    addEventListener("click", (event) => this._options.contains(event.target) || this._shut());
    this._options.addEventListener("keydown", (event) => event.key === "Escape" && this._shut());
  }

  _shut() {
    this._options.open = false;
  }

  _key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this._send();
  }

  _picked() {
    this._add([...this._picker.files]);
    this._picker.value = "";
  }

  _pasted(event) {
    const files = [...(event.clipboardData?.files || [])];
    if (!files.length || !this.element.isConnected) return;
    event.preventDefault();
    this._add(files);
  }

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
    this._continues.hidden = !this._parent;
    this._continues.replaceChildren("Continues ", h("q", {}, cut(this._parent?.spec.request || "", 80)));
    this._words.style.setProperty("height", "auto");
    this._words.style.setProperty("height", `${Math.min(this._words.scrollHeight, 320)}px`);
  }

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
      const headers = { "idempotency-key": this._attempt };
      const run = await this._api.json("/v1/runs", { method: "POST", body: this._body(), headers });
      this.reset();
      this._listener.started(run.run_id);
    } catch (problem) {
      this._listener.failed(problem);
    } finally {
      this._busy(false);
    }
  }

  _busy(on) {
    this._button.disabled = on;
    this._hint.textContent = on ? "Sending…" : "Press Enter to send";
    this.element.setAttribute("aria-busy", String(on));
  }

  _body() {
    const chosen = (name) => this._choices.get(name).checked;
    const spec = {
      request: this._words.value.trim(),
      ...(chosen("approve") && { mode: "approve" }),
      ...(chosen("local") && { policy: "local" }),
      ...(chosen("fresh") && { bypass_memo: true }),
      ...(this._inputs.length && { inputs: this._inputs.map(({ name, ...value }) => value) }),
      ...(this._parent && { parent_run_id: this._parent.id }),
    };
    const body = new FormData();
    body.append("spec", JSON.stringify(spec));
    this._files.forEach((file) => body.append("file", file, file.name));
    return body;
  }
}
