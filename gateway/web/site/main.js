/** Entry point of the page: routing and navigation. */

import { Api } from "./api.js";
import { BatchView } from "./batch.js";
import { batches } from "./batches.js";
import { TaskCatalog } from "./catalog.js";
import { Composer } from "./composer.js";
import { h } from "./element.js";
import { Files } from "./files.js";
import { History } from "./history.js";
import { askKey } from "./key.js";
import { SaveDialog } from "./save_dialog.js";
import { notice } from "./notice.js";
import { PipelineView } from "./pipeline.js";
import { pipelines } from "./pipelines.js";
import { SAMPLES, sampleAddress, sampleFiles } from "./samples.js";
import { themed } from "./theme.js";
import { homeLink } from "./links.js";
import { RunView } from "./view.js";
import { Announcer } from "./announcer.js";

/**
 * List to mark in the navigation, by kind of page.
 * @type {Record<string, string>}
 */
const PARTS = { pipeline: "pipelines", pipelines: "pipelines", batch: "batches", batches: "batches" };

const part = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

/**
 * @typedef {{element: HTMLElement, close: () => void}} View
 * @typedef {import("./api.js").Problem} Problem
 * @typedef {import("./samples.js").Sample} Sample
 */

class Page {
  constructor() {
    this._api = new Api(askKey);
    this._files = new Files(this._api);
    this._history = new History(this._api, part("runs"));
    this._problems = h("div");
    /** Place of the composer below a run. */
    this._below = h("section.below");
    this._announcer = new Announcer(part("live"));
    /** @type {View | null} */
    this._view = null;
    this._composer = new Composer(this._api, {
      started: (address) => this._go(address),
      failed: (problem) => this._problems.replaceChildren(notice(problem, () => this._problems.replaceChildren())),
    });
    /** @type {Record<string, (id: string, query: URLSearchParams) => void>} */
    this._routes = {
      run: (id) => this._run(id),
      pipeline: (name, query) => this._pipeline(name, query.get("version") || ""),
      pipelines: () => this._opened(pipelines(this._api)),
      batch: (id) => this._batch(id),
      batches: () => this._opened(batches(this._api)),
    };
    themed(/** @type {HTMLButtonElement} */ (part("shade")));
    this._keys();
    this._drawer();
    addEventListener("popstate", () => this._show());
    document.addEventListener("click", (event) => this._clicked(event));
  }

  start() {
    this._show();
  }

  _show() {
    this._view?.close();
    this._view = null;
    this._problems.replaceChildren();
    const query = new URLSearchParams(location.search);
    const kind = Object.keys(this._routes).find((each) => query.has(each));
    if (location.pathname !== "/") this._unknown();
    else if (kind) this._routes[kind](query.get(kind) || "", query);
    else this._home();
    this._history.mark(kind ? PARTS[kind] || query.get(kind) || "" : "");
    this._history.refresh().then(() => (part("forget-key").hidden = !this._api.hasKey));
  }

  _home() {
    document.title = "HuggingGPT";
    this._composer.reset();
    const samples = SAMPLES.map((sample) =>
      h(
        "li",
        {},
        h(
          "button.sample",
          { type: "button", click: () => this._try(sample) },
          face(sample),
          h("span", {}, sample.request),
        ),
      ),
    );
    part("main").replaceChildren(
      h(
        "section.home",
        {},
        h("h1", {}, "What would you like to do?"),
        h(
          "p.lead",
          {},
          "Describe a task and add files. HuggingGPT plans it as tasks and runs each task with a suitable model.",
        ),
        this._composer.element,
        this._problems,
        h("h2", {}, "Examples"),
        h("ul.samples", { "aria-label": "Examples" }, samples),
        h("h2", {}, "What you can ask for"),
        new TaskCatalog(this._api, (text) => this._fill(text)).element,
      ),
    );
    if (matchMedia("(hover: hover)").matches) this._composer.focus();
  }

  /**
   * Fills in an example; its files are up to the user.
   * @param {string} text
   */
  _fill(text) {
    this._composer.suggest(text);
    this._composer.element.scrollIntoView({ block: "center" });
  }

  _unknown() {
    document.title = "Page not found · HuggingGPT";
    part("main").replaceChildren(
      h(
        "section.home",
        {},
        h("h1", {}, "This page does not exist"),
        h("p.lead", {}, "The address may be misspelled, or what it showed was deleted."),
        h("p", {}, homeLink()),
      ),
    );
  }

  /** @param {string} id */
  _run(id) {
    const view = new RunView(this._api, this._files, id, {
      say: (text) => this._announcer.say(text),
      changed: () => this._history.refresh(),
      again: (run, follow) => this._more(follow ? { parent: run } : repeated(run)),
      ask: (text) => this._more({ text }),
      go: (address) => this._go(address),
      save: (run) => this._save({ run_id: run.id }, run.spec.request || ""),
    });
    this._below = h("section.below", { "aria-label": "Ask more", hidden: true });
    this._opened(view, this._below);
  }

  /**
   * @param {string} name
   * @param {string} version
   */
  _pipeline(name, version) {
    this._opened(new PipelineView(this._api, this._files, { name, version }, (address) => this._go(address)));
  }

  /** @param {string} id */
  _batch(id) {
    const view = new BatchView(this._api, this._files, id, {
      say: (text) => this._announcer.say(text),
      save: (source, text) => this._save(source, text),
      go: (address) => this._go(address),
    });
    this._opened(view);
  }

  /**
   * @param {View} view
   * @param {...HTMLElement} below
   */
  _opened(view, ...below) {
    this._view = view;
    part("main").replaceChildren(this._view.element, ...below);
    scrollTo(0, 0);
  }

  /**
   * @param {{run_id: string} | {plan: import("../types.js").Task[]}} source
   * @param {string} text
   */
  _save(source, text) {
    new SaveDialog(this._api, source, text, (address) => this._go(address));
  }

  /**
   * Shows the composer below a run: for a follow-up, another request, or the same one with the stored files.
   * @param {import("./composer.js").Start} from
   */
  _more(from) {
    this._composer.reset(from);
    this._below.replaceChildren(this._composer.element, this._problems);
    this._below.hidden = false;
    this._composer.focus();
    this._below.scrollIntoView({ block: "center" });
  }

  /** @param {Sample} sample */
  async _try(sample) {
    this._problems.replaceChildren();
    await this._composer.ask(sample.request, await sampleFiles(sample));
  }

  /** @param {string} address */
  _go(address) {
    if (address !== location.pathname + location.search) history.pushState(null, "", address);
    this._show();
    part("main").focus({ preventScroll: true });
  }

  /**
   * Handles links within the page without reloading it.
   * @param {MouseEvent} event
   */
  _clicked(event) {
    const link =
      event.target instanceof Element
        ? /** @type {HTMLAnchorElement | null} */ (event.target.closest("a[href]"))
        : null;
    if (!link || link.target || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const target = new URL(link.href);
    if (target.origin !== location.origin || target.pathname !== "/" || target.hash) return;
    event.preventDefault();
    this._openDrawer(false);
    this._go(target.pathname + target.search);
  }

  _keys() {
    const forget = part("forget-key");
    forget.addEventListener("click", () => {
      this._api.forgetKey();
      forget.hidden = true;
      this._go("/");
    });
  }

  /** Toggles the navigation on narrow screens. */
  _drawer() {
    const button = part("show-runs");
    button.addEventListener("click", () => this._openDrawer(button.getAttribute("aria-expanded") !== "true"));
    addEventListener("keydown", (event) => event.key === "Escape" && this._openDrawer(false));
  }

  /** @param {boolean} on */
  _openDrawer(on) {
    document.body.classList.toggle("with-runs", on);
    part("show-runs").setAttribute("aria-expanded", String(on));
  }
}

/** @param {import("./record.js").RunRecord} run */
function repeated({ spec }) {
  return { text: spec.request, inputs: [...(spec.inputs || [])] };
}

/** @param {Sample} sample */
function face(sample) {
  if (/image/.test(sample.type || "")) return h("img", { src: sampleAddress(sample), alt: "", loading: "lazy" });
  return h("span.paper", { "aria-hidden": "true" }, sample.file ? "PDF" : "“ ”");
}

new Page().start();
