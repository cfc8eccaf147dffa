/** The page, put together. */

import { Api } from "./api.js";
import { BatchView } from "./batch.js";
import { batches } from "./batches.js";
import { Composer } from "./composer.js";
import { h } from "./element.js";
import { Files } from "./files.js";
import { History } from "./history.js";
import { askKey } from "./key.js";
import { KeepDialog } from "./keeping.js";
import { notice } from "./notice.js";
import { PipelineView } from "./pipeline.js";
import { pipelines } from "./pipelines.js";
import { SAMPLES, address, files as sampleFiles } from "./samples.js";
import { themed } from "./theme.js";
import { runAddress } from "./titles.js";
import { RunView } from "./view.js";
import { Voice } from "./voice.js";

/** Which list a page belongs to. */
const PARTS = { pipeline: "pipelines", pipelines: "pipelines", batch: "batches", batches: "batches" };

const part = (id) => document.getElementById(id);

class Page {
  constructor() {
    this._api = new Api(askKey);
    this._files = new Files(this._api);
    this._history = new History(this._api, part("runs"));
    this._problems = h("div");
    this._voice = new Voice(part("live"));
    this._view = null;
    this._composer = new Composer(this._api, {
      started: (run) => this._go(runAddress(run)),
      failed: (problem) => this._problems.replaceChildren(notice(problem, () => this._problems.replaceChildren())),
    });
    this._places = {
      run: (id) => this._run(id),
      pipeline: (name, asked) => this._pipeline(name, asked.get("version") || ""),
      pipelines: () => this._opened(pipelines(this._api)),
      batch: (id) => this._batch(id),
      batches: () => this._opened(batches(this._api)),
    };
    themed(part("shade"));
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
    const asked = new URLSearchParams(location.search);
    const place = Object.keys(this._places).find((each) => asked.has(each));
    if (place) this._places[place](asked.get(place), asked);
    else this._home();
    this._history.mark(PARTS[place] || asked.get(place) || "");
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
        h("h1", {}, "What shall be done?"),
        h(
          "p.lead",
          {},
          "Say it in a sentence, with files if you like. It becomes a plan of tasks, each run by a model that fits.",
        ),
        this._composer.element,
        this._problems,
        h("h2", {}, "Or try one of these"),
        h("ul.samples", {}, samples),
      ),
    );
    if (matchMedia("(hover: hover)").matches) this._composer.focus();
  }

  _run(id) {
    const view = new RunView(this._api, this._files, id, {
      say: (words) => this._voice.say(words),
      changed: () => this._history.refresh(),
      again: (run, follow) => this._more(run, follow),
      keep: (run) => this._keep({ run_id: run.id }, run.spec.request || ""),
    });
    this._below = h("section.below", { "aria-label": "Ask more", hidden: true });
    this._opened(view, this._below);
  }

  _pipeline(name, version) {
    this._opened(new PipelineView(this._api, this._files, { name, version }, (address) => this._go(address)));
  }

  _batch(id) {
    const listener = {
      say: (words) => this._voice.say(words),
      keep: (source, words) => this._keep(source, words),
    };
    this._opened(new BatchView(this._api, this._files, id, listener));
  }

  _opened(view, ...below) {
    this._view = view;
    part("main").replaceChildren(this._view.element, ...below);
    scrollTo(0, 0);
  }

  _keep(source, words) {
    new KeepDialog(this._api, source, words, (address) => this._go(address));
  }

  /** Below the run: for what comes next, or to ask the same again with the files the house still has. */
  _more(run, follow) {
    this._composer.reset(follow ? { parent: run } : { words: run.spec.request, inputs: [...(run.spec.inputs || [])] });
    this._below.replaceChildren(this._composer.element, this._problems);
    this._below.hidden = false;
    this._composer.focus();
    this._below.scrollIntoView({ block: "center" });
  }

  async _try(sample) {
    this._problems.replaceChildren();
    await this._composer.ask(sample.request, await sampleFiles(sample));
  }

  _go(address) {
    if (address !== location.pathname + location.search) history.pushState(null, "", address);
    this._show();
    part("main").focus({ preventScroll: true });
  }

  /** Links within the page need not load it anew. */
  _clicked(event) {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!link || link.target || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const target = new URL(link.href);
    if (target.origin !== location.origin || target.pathname !== "/" || target.hash) return;
    event.preventDefault();
    this._shut();
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

  /** On narrow screens the earlier runs come and go. */
  _drawer() {
    const button = part("show-runs");
    const open = (on) => {
      document.body.classList.toggle("with-runs", on);
      button.setAttribute("aria-expanded", String(on));
    };
    this._shut = () => open(false);
    button.addEventListener("click", () => open(button.getAttribute("aria-expanded") !== "true"));
    addEventListener("keydown", (event) => event.key === "Escape" && open(false));
  }
}

function face(sample) {
  if (/image/.test(sample.type || "")) return h("img", { src: address(sample), alt: "", loading: "lazy" });
  return h("span.paper", { "aria-hidden": "true" }, sample.file ? "PDF" : "“ ”");
}

new Page().start();
