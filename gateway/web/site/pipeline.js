/** View of one pipeline: description, graph, and a form that runs it. */

import { card } from "./card.js";
import { confirmDeletion } from "./confirm_dialog.js";
import { Details } from "./details.js";
import { h } from "./element.js";
import { RunForm } from "./form.js";
import { Graph } from "./graph.js";
import { notice } from "./notice.js";
import { kindOf } from "./parameter.js";
import { PlanRecord } from "./plan.js";
import { homeLink, pipelineAddress, runAddress } from "./links.js";
import { ago, plural } from "./format.js";

export class PipelineView {
  /**
   * @param {import("./api.js").Api} api
   * @param {import("./files.js").Files} files
   * @param {{name: string, version: string}} which version empty: the latest
   * @param {(address: string) => void} go
   */
  constructor(api, files, { name, version }, go) {
    this._api = api;
    this._files = files;
    this._go = go;
    this._path = `/v1/pipelines/${encodeURIComponent(name)}`;
    this._closed = new AbortController();
    this.element = h("article.run.pipeline", { "aria-label": "Pipeline" }, h("h1", { tabindex: "-1" }, name));
    document.title = `${name} · HuggingGPT`;
    this._read(version);
  }

  close() {
    this._closed.abort();
    this._form?.close();
  }

  /** @param {string} version */
  async _read(version) {
    const signal = this._closed.signal;
    try {
      const [pipeline, versions] = await Promise.all([
        this._api.json(this._path + (version ? `?version=${encodeURIComponent(version)}` : ""), { signal }),
        this._api.json(`${this._path}/versions`, { signal }),
      ]);
      if (!signal.aborted) this._show(pipeline, versions.data);
    } catch (problem) {
      if (!signal.aborted) this._wrong(problem);
    }
  }

  /**
   * @param {import("../types.js").Pipeline} pipeline
   * @param {import("../types.js").Pipeline[]} versions
   */
  _show(pipeline, versions) {
    const plan = new PlanRecord(pipeline);
    const details = new Details(this._files, this._api);
    const graph = new Graph((task) => details.open(task));
    this._form = new RunForm(this._api, pipeline, this._go);
    const text = h("p.quiet", {}, plural(plan.tasks.size, "task"));
    this.element.replaceChildren(
      head(pipeline, versions, () => this._delete(pipeline, versions)),
      card("plan", "Plan", text, graph.element),
      card("start.half", "Run pipeline", this._form.element),
      h("div.side", {}, card("takes", "Inputs and outputs", ports(pipeline)), card("tasks", "Tasks", details.element)),
    );
    graph.show(plan);
    details.show(plan);
  }

  /**
   * @param {import("../types.js").Pipeline} pipeline
   * @param {import("../types.js").Pipeline[]} versions
   */
  _delete({ name, version }, versions) {
    const several = versions.length > 1;
    const remove = async () => {
      await this._api.fetch(this._path, { method: "DELETE" });
      this._go("/?pipelines");
    };
    const what = several ? `All ${versions.length} versions are deleted.` : `Version ${version} is deleted.`;
    confirmDeletion(`Delete pipeline ${name}?`, `${what} Its runs and batches stay. This cannot be undone.`, remove);
  }

  /** @param {import("./api.js").Problem} problem */
  _wrong(problem) {
    const title = problem.status === 404 ? "There is no such pipeline" : "This page cannot be loaded";
    this.element.replaceChildren(h("h1", { tabindex: "-1" }, title), notice(problem), h("p", {}, homeLink()));
  }
}

/**
 * @param {import("../types.js").Pipeline} pipeline
 * @param {import("../types.js").Pipeline[]} versions
 * @param {() => void} remove
 */
function head(pipeline, versions, remove) {
  const { name, version, create_time: created, description, source_run_id: run, policy } = pipeline;
  const about = [
    `Version ${version}`,
    created && `, saved ${ago(created)}`,
    run && [" from ", h("a", { href: runAddress(run) }, "a run")],
  ].flat();
  return h(
    "header.page-header",
    {},
    h(
      "div.line",
      {},
      h("h1", { tabindex: "-1" }, name),
      h("div.actions", {}, h("button.quiet", { type: "button", click: remove }, "Delete")),
    ),
    description && h("p.lead", {}, description),
    h("p.quiet", {}, about, policy === "local" && ". Its data never leaves this deployment."),
    versions.length > 1 && others(versions, version),
  );
}

/**
 * @param {import("../types.js").Pipeline[]} versions
 * @param {number} shown
 */
function others(versions, shown) {
  const link = (/** @type {import("../types.js").Pipeline} */ { name, version }) =>
    h(
      "a",
      { href: pipelineAddress({ name, version }), "aria-current": version === shown ? "page" : null },
      h("span.unseen", {}, "version "),
      version,
    );
  return h("p.versions.quiet", {}, "Versions: ", versions.map(link));
}

/** @param {import("../types.js").Pipeline} pipeline */
function ports({ inputs = [], outputs = [] }) {
  return [list("Inputs", inputs, "none"), list("Outputs", outputs, "the outputs of its tasks")];
}

/**
 * @param {string} title
 * @param {import("../types.js").Port[]} listed
 * @param {string} none
 */
function list(title, listed, none) {
  const row = (/** @type {import("../types.js").Port} */ port) => [
    h("dt", {}, port.name),
    h("dd", {}, kindOf(port).one, port.description && h("small", {}, ` ${port.description}`)),
  ];
  return h("section.part", {}, h("h3", {}, title), listed.length ? h("dl", {}, listed.flatMap(row)) : h("p", {}, none));
}
