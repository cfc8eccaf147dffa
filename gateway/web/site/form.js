/** Form that runs a pipeline: as a run, or as a batch if a parameter has several files. */

import { Problem, randomId } from "./api.js";
import { choice } from "./choice.js";
import { dropping } from "./drop_target.js";
import { h } from "./element.js";
import { notice } from "./notice.js";
import { Parameter } from "./parameter.js";
import { Uploads } from "./upload.js";
import { batchAddress, runAddress } from "./links.js";
import { amount, plural } from "./format.js";

/** @typedef {Map<Parameter, import("../types.js").Value | undefined>} Written entered values */

export class RunForm {
  /**
   * @param {import("./api.js").Api} api
   * @param {import("../types.js").Pipeline} pipeline
   * @param {(address: string) => void} go called with the address of the started run or batch
   */
  constructor(api, pipeline, go) {
    this._api = api;
    this._pipeline = pipeline;
    this._go = go;
    this._closed = new AbortController();
    this._sending = new Uploads(api, this._closed.signal);
    this._attempt = "";
    /** @type {Parameter[]} */
    this._parameters = [];
    const local = this._pipeline.policy === "local";
    this._local = h("input", { type: "checkbox", checked: local, disabled: local });
    this._fresh = h("input", { type: "checkbox" });
    this._fields = h("div.parameters");
    this._problems = h("div");
    this._button = h("button.primary", { type: "submit" });
    this._hint = h("small.quiet", { role: "status" });
    this._count = h("small.quiet");
    this.element = h(
      "form.form",
      { submit: (event) => (event.preventDefault(), this._submit()) },
      !this._pipeline.inputs?.length && h("p.quiet", {}, "This pipeline has no inputs."),
      this._fields,
      choice(this._local, "Process only on this deployment", "No external model receives the files or the results."),
      choice(this._fresh, "Ignore cached results", "Every task runs again."),
      this._problems,
      h("div.row", {}, this._button, this._hint, this._count),
    );
    this._parameters = (pipeline.inputs || []).map((port, at) => new Parameter(port, at + 1, () => this._changed()));
    this._fields.append(...this._parameters.map(({ element }) => element));
    this._changed();
    dropping(
      () => this._parameters.length > 0,
      (files, on) => this._dropped(files, on),
      this._closed.signal,
    );
  }

  /** Aborts pending uploads. */
  close() {
    this._closed.abort();
  }

  /**
   * Adds dropped files to the parameter below the pointer, or to the only parameter.
   * @param {File[]} files
   * @param {EventTarget | null} on
   */
  _dropped(files, on) {
    const [first, ...others] = this._parameters;
    const under = this._parameters.find(({ element }) => on instanceof Node && element.contains(on));
    (under || (others.length ? null : first))?.add(files);
  }

  /** Number of items of a batch; 0 for a single run. */
  get _many() {
    const most = Math.max(0, ...this._parameters.map(({ files }) => files.length));
    return most > 1 ? most : 0;
  }

  _changed() {
    this._attempt = "";
    this._problems.replaceChildren();
    this._idle();
  }

  _idle() {
    const many = this._many;
    this._button.disabled = false;
    this._button.textContent = many ? `Run on ${plural(many, "file")}` : "Run pipeline";
    this._hint.textContent = many ? "Starts a batch with one item per file." : "";
    this._count.textContent = "";
    this.element.setAttribute("aria-busy", "false");
  }

  async _submit() {
    if (this._button.disabled) return;
    this._attempt ||= randomId();
    this._problems.replaceChildren();
    this._button.disabled = true;
    this.element.setAttribute("aria-busy", "true");
    try {
      await this._begin();
    } catch (problem) {
      if (!this._closed.signal.aborted) this._wrong(problem);
    } finally {
      this._idle();
    }
  }

  async _begin() {
    const many = this._many;
    this._paired(many);
    const written = new Map(this._parameters.map((parameter) => [parameter, parameter.written]));
    const files = this._parameters.flatMap((parameter) => parameter.files);
    if (files.length) this._hint.textContent = "Uploading files…";
    await this._sending.send(files, (there) => this._status(there, files.length));
    this._hint.textContent = "Starting…";
    this._count.textContent = "";
    if (many) await this._batch(written);
    else await this._run(written);
  }

  /**
   * Checks that every parameter has one file per item, or one file for all items.
   * @param {number} many
   */
  _paired(many) {
    const odd = this._parameters.find(({ files }) => files.length > 1 && files.length !== many);
    if (!odd) return;
    throw new Problem({
      detail: `${odd.name} has ${plural(odd.files.length, "file")}, another parameter ${amount(many)}.`,
      remedy: "give every parameter the same number of files in the same order, or one file for all items",
    });
  }

  /** @param {Written} written */
  async _run(written) {
    const refused = this._parameters.flatMap(({ files }) => files).map((file) => this._sending.problem(file));
    if (refused.some(Boolean)) throw refused.find(Boolean);
    const spec = { ...this._spec(), inputs: this._inputs(written, 0) };
    const run = await this._post("/v1/runs", JSON.stringify(spec), "application/json");
    this._go(runAddress(run.run_id));
  }

  /** @param {Written} written */
  async _batch(written) {
    const named = this._parameters.find(({ files }) => files.length > 1)?.files || [];
    const items = named.map(({ name }, at) => ({ name, ...this._item(written, at) }));
    const lines = [this._spec(), ...items].map((line) => `${JSON.stringify(line)}\n`);
    const batch = await this._post("/v1/pipeline-batches", new Blob(lines), "application/x-ndjson");
    this._go(batchAddress(batch.batch_id));
  }

  _spec() {
    const { name, version } = this._pipeline;
    return {
      pipeline: { name, version },
      ...(this._local.checked && { policy: "local" }),
      ...(this._fresh.checked && { bypass_memo: true }),
    };
  }

  /**
   * The inputs of an item; its failure if one of its files was rejected.
   * @param {Written} written
   * @param {number} at
   */
  _item(written, at) {
    const files = this._parameters.flatMap((parameter) => fileOf(parameter.files, at) || []);
    const problem = files.map((file) => this._sending.problem(file)).find(Boolean);
    if (!problem) return { inputs: this._inputs(written, at) };
    return { failure: { reason: problem.code, message: problem.message, remedy: problem.remedy } };
  }

  /**
   * @param {Written} written
   * @param {number} at
   */
  _inputs(written, at) {
    return this._parameters.flatMap((parameter) => {
      const file = fileOf(parameter.files, at);
      const value = file ? { artifact: this._sending.artifact(file) } : written.get(parameter);
      return value && typeof value === "object" ? [{ name: parameter.name, ...value }] : [];
    });
  }

  /**
   * @param {string} path
   * @param {BodyInit} body
   * @param {string} type
   */
  _post(path, body, type) {
    const headers = { "content-type": type, "idempotency-key": this._attempt };
    return this._api.json(path, { method: "POST", body, headers, signal: this._closed.signal });
  }

  /**
   * @param {number} there
   * @param {number} all
   */
  _status(there, all) {
    this._count.textContent = `${amount(there)} of ${amount(all)}`;
  }

  /** @param {Problem} problem */
  _wrong(problem) {
    this._problems.replaceChildren(notice(problem, () => this._problems.replaceChildren()));
  }
}

/**
 * The item's own file, or the file for all items.
 * @param {File[]} files
 * @param {number} at
 * @returns {File | undefined}
 */
function fileOf(files, at) {
  return files[at] || files[0];
}
