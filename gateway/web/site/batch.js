/** View of one batch, active or ended. */

import { Problem } from "./api.js";
import { card } from "./card.js";
import { confirmDeletion } from "./confirm_dialog.js";
import { Details } from "./details.js";
import { h } from "./element.js";
import { Graph } from "./graph.js";
import { Items } from "./items.js";
import { notice } from "./notice.js";
import { PlanRecord } from "./plan.js";
import { ENDED, artifactsOf } from "./record.js";
import { itemFileName, saveAll } from "./save_files.js";
import { badge } from "./state.js";
import { EventStream } from "./stream.js";
import { errors, times } from "./summary.js";
import { Tally, done } from "./tally.js";
import { homeLink, pipelineLink, titleOf } from "./links.js";
import { ago, amount, plural, duration } from "./format.js";

/** Minimum interval between summaries of an active batch: in milliseconds, and as a multiple of a request's duration. */
const SUMMARY_INTERVAL = 10_000;
const SUMMARY_FACTOR = 20;

/** Lifetime of an object URL with results, in milliseconds. */
const OBJECT_URL_LIFETIME = 60_000;

/** Number of progress announcements for screen readers. */
const ANNOUNCEMENTS = 4;

/** Number of items per request while their files are collected. */
const PAGE = 200;

const FILE_MODALITIES = new Set(["image", "audio", "video", "table"]);

const FORMS = [
  ["JSON lines", "jsonl"],
  ["CSV", "csv"],
];

/** @typedef {import("../types.js").Batch} Batch */

export class BatchView {
  /**
   * @param {import("./api.js").Api} api
   * @param {import("./files.js").Files} files
   * @param {string} id
   * @param {{say: (text: string) => void, save: (source: {plan: import("../types.js").Task[]}, text: string) => void,
   *   go: (address: string) => void}} listener
   */
  constructor(api, files, id, listener) {
    this._api = api;
    this._files = files;
    this._path = `/v1/pipeline-batches/${encodeURIComponent(id)}`;
    this._listener = listener;
    this._closed = new AbortController();
    this._items = new Items(api, files, id);
    this._status = 0;
    /** @type {Batch | null} */
    this._batch = null;
    /** @type {EventStream | null} */
    this._stream = null;
    this._summary = { next: 0, known: "", going: false };
    this._id = id;
    this._badge = h("span.state");
    this._actions = h("div.actions");
    this._title = h("h1", { tabindex: "-1" }, "…");
    this._about = h("p.quiet");
    this._problems = h("div");
    this._lost = h("p.lost", { role: "status", hidden: true }, "The connection was lost. Reconnecting…");
    this._waiting = h("p.lost", { role: "status", hidden: true });
    this._tally = new Tally(true);
    this._pace = h("p.quiet.pace");
    this._errors = h("div");
    this._times = h("div");
    this._plan = h("div");
    this._allFiles = h("button.quiet", { type: "button", click: () => this._saveFiles() }, "Save all files");
    const links = FORMS.map(([text, format]) => this._saving(text, format));
    const saving = h(
      "div.actions",
      { role: "group", "aria-label": "Save the results" },
      "Results:",
      links,
      this._allFiles,
    );
    this._progressCard = card("progress", "Progress", this._tally.element, h("div.line", {}, this._pace, saving));
    this._itemsCard = card("members.half", "Items", this._items.element);
    this._errorCard = card("trouble", "Errors", this._errors);
    this._timeCard = card("times", "Time per item", this._times);
    this._planCard = card("plan", "Plan", this._plan);
    const cards = [this._progressCard, this._itemsCard, this._errorCard, this._timeCard, this._planCard];
    cards.forEach((each) => (each.hidden = true));
    this.element = h(
      "article.run.batch",
      { "aria-label": "Batch" },
      h("header.page-header", {}, h("div.line", {}, this._badge, this._actions), this._title, this._about),
      this._problems,
      this._lost,
      this._waiting,
      this._progressCard,
      this._itemsCard,
      h("div.side", {}, this._errorCard, this._timeCard, this._planCard),
    );
    this._watch();
  }

  close() {
    this._closed.abort();
    this._stream?.stop();
    this._items.close();
  }

  async _watch() {
    try {
      const batch = await this._api.json(this._path, { signal: this._closed.signal });
      this._show(batch);
      if (ENDED.has(batch.state) || this._closed.signal.aborted) return;
    } catch (problem) {
      this._wrong(problem);
      return;
    }
    this._stream = new EventStream(this._api, `${this._path}/events`, ({ state }) => ENDED.has(state), {
      event: (batch) => this._show(batch),
      connection: (there) => (this._lost.hidden = there),
      problem: (problem) => this._wrong(problem),
    });
    this._stream.read();
  }

  /** @param {Batch} update */
  _show(update) {
    const before = this._batch;
    const batch = planned(update, before);
    this._batch = batch;
    if (before?.state !== batch.state || before.counts.total !== batch.counts.total) this._head(batch);
    this._progressCard.hidden = this._itemsCard.hidden = false;
    this._tally.show(batch.counts);
    this._pace.textContent = pace(batch);
    this._wait(batch.waiting_for || "");
    this._items.show(batch.counts);
    this._allFiles.hidden = !hasFiles(batch);
    if (batch.pipeline?.plan && this._planCard.hidden) this._draw(batch.pipeline);
    this._sum(batch);
    this._tell(batch, before);
  }

  /**
   * Changes the text only if it differs, so that screen readers announce it once.
   * @param {string} why
   */
  _wait(why) {
    if (this._waiting.textContent !== why) this._waiting.textContent = why;
    this._waiting.hidden = !why;
  }

  /** @param {Batch} batch */
  _head(batch) {
    const { pipeline, create_time: created, counts, failure } = batch;
    this._title.textContent = titleOf(batch);
    document.title = `${titleOf(batch)}, ${plural(counts.total, "item")} · HuggingGPT`;
    this._badge.replaceChildren(badge(batch.state));
    this._about.replaceChildren(
      `A batch of ${plural(counts.total, "item")}`,
      ...(pipeline?.name ? [" with pipeline ", pipelineLink(pipeline)] : []),
      created ? `, started ${ago(created)}` : "",
    );
    this._acts(batch);
    this._problems.replaceChildren(...(failure ? [notice(failure)] : []));
  }

  /** @param {Batch} batch */
  _acts({ state, counts, pipeline, spec }) {
    const act = (/** @type {string} */ text, /** @type {() => void} */ does, kind = "quiet") =>
      h(`button.${kind}`, { type: "button", click: does }, text);
    const over = ENDED.has(state);
    const open = (counts.waiting || 0) + (counts.cancelled || 0);
    const bad = (counts.failed || 0) + (counts.incomplete || 0);
    const plan = pipeline?.plan;
    const save = (/** @type {import("../types.js").Task[]} */ tasks) =>
      this._listener.save({ plan: tasks }, titleOf({ spec }));
    this._actions.replaceChildren(
      ...[
        !over && act("Cancel", () => this._send("cancel")),
        over && open > 0 && act(`Resume the other ${amount(open)}`, () => this._send("resume"), "primary"),
        over &&
          bad > 0 &&
          act(bad > 1 ? `Retry ${amount(bad)} failed items` : "Retry the failed item", () =>
            this._send("resume", { failed_only: true }),
          ),
        plan && !pipeline.name && act("Save this plan", () => save(plan)),
        over && act("Delete", () => this._delete()),
      ].flatMap((each) => each || []),
    );
  }

  /** @param {import("../types.js").Pipeline} pipeline */
  _draw(pipeline) {
    const plan = new PlanRecord(pipeline);
    const details = new Details(this._files, this._api);
    const graph = new Graph((task) => details.open(task));
    this._plan.replaceChildren(graph.element, details.element);
    this._planCard.hidden = false;
    graph.show(plan);
    details.show(plan);
  }

  _delete() {
    confirmDeletion(
      "Delete this batch?",
      "Its items, their runs and their results are deleted. This cannot be undone.",
      async () => {
        await this._api.fetch(this._path, { method: "DELETE" });
        this._listener.go("/?batches");
      },
    );
  }

  async _saveFiles() {
    this._allFiles.setAttribute("disabled", "");
    try {
      const files = await this._outputFiles();
      if (!files.length) throw new Problem({ detail: "No item has an output file.", remedy: "" });
      await saveAll(this._api, `${this._id}.zip`, files, this._closed.signal);
    } catch (problem) {
      if (!this._closed.signal.aborted)
        this._problems.replaceChildren(notice(problem, () => this._problems.replaceChildren()));
    } finally {
      this._allFiles.removeAttribute("disabled");
    }
  }

  /** Output files of all items, named by item and output. */
  async _outputFiles() {
    /** @type {{name: string, artifact: import("../types.js").Artifact}[]} */
    const files = [];
    let token = "";
    do {
      const query = new URLSearchParams({ page_size: String(PAGE), ...(token && { page_token: token }) });
      const page = await this._api.json(`${this._path}/items?${query}`, { signal: this._closed.signal });
      files.push(...page.data.flatMap(outputFiles));
      token = page.next_page_token || "";
    } while (token);
    return files;
  }

  /**
   * @param {"cancel" | "resume"} verb
   * @param {{failed_only?: boolean}} [body]
   */
  async _send(verb, body = {}) {
    const options = { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
    try {
      await this._api.fetch(`${this._path}/${verb}`, verb === "cancel" ? { method: "POST" } : options);
      this._problems.replaceChildren();
      if (verb === "resume") await this._watch();
    } catch (problem) {
      this._problems.replaceChildren(notice(problem, () => this._problems.replaceChildren()));
    }
  }

  /**
   * Updates the summary: at the end, and at intervals before.
   * @param {Batch} batch
   */
  async _sum({ state, counts }) {
    const over = ENDED.has(state);
    const known = JSON.stringify([over, counts]);
    const due = over || performance.now() > this._summary.next;
    if (!due || this._summary.going || known === this._summary.known || !done(counts)) return;
    Object.assign(this._summary, { known, going: true });
    const began = performance.now();
    try {
      this._showSummary(await this._api.json(`${this._path}/summary`, { signal: this._closed.signal }));
    } catch (problem) {
      this._wrong(problem);
    }
    this._summary.going = false;
    this._summary.next = performance.now() + Math.max(SUMMARY_INTERVAL, SUMMARY_FACTOR * (performance.now() - began));
    if (this._batch && ENDED.has(this._batch.state)) this._sum(this._batch);
  }

  /** @param {import("../types.js").Summary} summary */
  _showSummary(summary) {
    shown(this._errorCard, this._errors, errors(summary));
    shown(this._timeCard, this._times, times(summary));
  }

  /**
   * Link to the results; downloads through an object URL if a key is needed.
   * @param {string} text
   * @param {string} format
   */
  _saving(text, format) {
    const path = `${this._path}/results?format=${format}`;
    const link = h("a.button", { href: path, download: `${this._id}.${format}` }, text);
    link.addEventListener("click", (event) => {
      if (!this._api.hasKey || link.href.startsWith("blob:")) return;
      event.preventDefault();
      this._copy(link, path);
    });
    return link;
  }

  /**
   * @param {HTMLAnchorElement} link
   * @param {string} path
   */
  async _copy(link, path) {
    try {
      const response = await this._api.fetch(path);
      const copy = URL.createObjectURL(await response.blob());
      link.href = copy;
      link.click();
      setTimeout(() => URL.revokeObjectURL(copy), OBJECT_URL_LIFETIME);
    } catch (problem) {
      this._problems.replaceChildren(notice(problem, () => this._problems.replaceChildren()));
    } finally {
      link.setAttribute("href", path);
    }
  }

  /** @param {Problem} problem */
  _wrong(problem) {
    if (this._closed.signal.aborted) return;
    if (!this._batch)
      this._title.textContent = problem.status === 404 ? "There is no such batch" : "This page cannot be loaded";
    if (!this._batch) this._about.replaceChildren(homeLink());
    this._problems.replaceChildren(notice(problem));
  }

  /**
   * Announces progress to screen readers.
   * @param {Batch} batch
   * @param {Batch | null} before
   */
  _tell({ state, counts }, before) {
    const part = Math.floor((ANNOUNCEMENTS * done(counts)) / Math.max(counts.total, 1));
    if (before && ENDED.has(state) && !ENDED.has(before.state)) this._listener.say(`The batch has ended: ${state}.`);
    else if (before && part > this._status)
      this._listener.say(`${amount(done(counts))} of ${amount(counts.total)} items.`);
    this._status = part;
  }
}

/**
 * Whether the plan of a batch has outputs that are files.
 * @param {Batch} batch
 */
function hasFiles({ counts, pipeline }) {
  return done(counts) > 0 && (pipeline?.outputs || []).some(({ modality }) => FILE_MODALITIES.has(modality || ""));
}

/** @param {import("../types.js").Item} item */
function outputFiles(item) {
  return Object.entries(item.outputs || {}).flatMap(([output, value]) =>
    artifactsOf(value).map((artifact) => ({ name: itemFileName(item, output, artifact), artifact })),
  );
}

/**
 * Copies the plan of an earlier event, because only one event contains it.
 * @param {Batch} batch
 * @param {Batch | null} before
 * @returns {Batch}
 */
function planned(batch, before) {
  return before?.pipeline?.plan && !batch.pipeline?.plan ? { ...batch, pipeline: before.pipeline } : batch;
}

/**
 * @param {HTMLElement} place
 * @param {HTMLElement} content
 * @param {HTMLElement | null} element
 */
function shown(place, content, element) {
  place.hidden = !element;
  content.replaceChildren(...(element ? [element] : []));
}

/** @param {Batch} batch */
function pace({ state, counts, items_per_second: rate, remaining, create_time: created, end_time: ended }) {
  const how = `${amount(done(counts))} of ${amount(counts.total)}`;
  if (ENDED.has(state)) return ended ? `${how}, in ${duration((Date.parse(ended) - Date.parse(created)) / 1000)}` : how;
  return [
    how,
    rate && `${rate < 10 ? rate.toFixed(1) : Math.round(rate)} items/s`,
    remaining !== undefined && `about ${duration(remaining)} left`,
  ]
    .filter(Boolean)
    .join(" · ");
}
