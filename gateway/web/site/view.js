/** View of one run, active or ended. */

import { card } from "./card.js";
import { TaskCatalog } from "./catalog.js";
import { confirmDeletion } from "./confirm_dialog.js";
import { Details } from "./details.js";
import { h } from "./element.js";
import { Graph } from "./graph.js";
import { notice, spoken } from "./notice.js";
import { Prose } from "./prose.js";
import { GOOD, RunRecord } from "./record.js";
import { saveAll } from "./save_files.js";
import { badge } from "./state.js";
import { EventStream } from "./stream.js";
import { Timeline } from "./timeline.js";
import { batchAddress, homeLink, pipelineAddress, pipelineLink, titleOf } from "./links.js";
import { plural, duration } from "./format.js";

/** Reason of a failure: the request calls for no available task. */
const UNPLANNABLE = "UNPLANNABLE";

export class RunView {
  /**
   * @param {import("./api.js").Api} api
   * @param {import("./files.js").Files} files
   * @param {string} id
   * @param {{say: (text: string) => void, changed: () => void, again: (run: RunRecord, follow: boolean) => void,
   *   ask: (text: string) => void, save: (run: RunRecord) => void, go: (address: string) => void}} listener
   */
  constructor(api, files, id, listener) {
    this._api = api;
    this._files = files;
    this._listener = listener;
    this.run = new RunRecord(id);
    this._gallery = this._shownState = this._shownAnswer = "";
    this._due = Infinity;
    this._free = 0;
    const choose = (/** @type {number} */ task) => this._details.open(task);
    this._graph = new Graph(choose);
    this._timeline = new Timeline(choose);
    this._details = new Details(this._files, this._api);
    this._prose = new Prose(this._files);
    this._badge = h("span");
    this._took = h("span.quiet");
    this._title = h("h1", { tabindex: "-1" }, "…");
    this._from = h("p.quiet.from");
    this._inputs = h("ul.chips", { "aria-label": "Files of the request" });
    this._actions = h("div.actions");
    this._problems = h("div");
    this._lost = h("p.lost", { role: "status", hidden: true }, "The connection was lost. Reconnecting…");
    this._plan = h("p.quiet");
    this._notes = h("ul.notes");
    this._made = h("div.gallery");
    this._by = h("p.quiet");
    this._planCard = card("plan", "Plan", this._plan, this._graph.element, this._notes);
    this._answerCard = card("answer.half", "Answer", this._prose.element, this._by);
    this._saveAll = h("button.quiet", { type: "button", click: () => this._saveFiles() }, "Save all");
    this._madeCard = card("made", "Output files", this._made, h("div.actions", {}, this._saveAll));
    this._offers = h("div");
    this._offersCard = card("catalog-card", "What you can ask for", this._offers);
    this._timeCard = card("time", "Timeline", this._timeline.element);
    this._taskCard = card("tasks", "Tasks", this._details.element);
    this._seen(false);
    this.element = h(
      "article.run",
      { "aria-label": "Run" },
      h(
        "header.page-header",
        {},
        h("div.line", {}, h("span.state", {}, this._badge, this._took), this._actions),
        this._title,
        this._from,
        this._inputs,
      ),
      this._problems,
      this._lost,
      this._planCard,
      this._answerCard,
      this._offersCard,
      h("div.side", {}, this._madeCard, this._timeCard),
      this._taskCard,
    );
    const path = `/v1/runs/${encodeURIComponent(id)}/events`;
    this._stream = new EventStream(api, path, (event) => "run_ended" in event, {
      event: (event) => this._heard(event),
      connection: (there) => (this._lost.hidden = there),
      problem: (problem) => this._wrong(problem),
    });
    this._stream.read();
  }

  close() {
    this._stream.stop();
    clearTimeout(this._timer);
  }

  /** @param {import("../types.js").RunEvent} event */
  _heard(event) {
    this.run.apply(event);
    this._tell(event);
    this._soon(0);
  }

  /**
   * Schedules an update; limits the share of time spent on updates for large plans.
   * @param {number} delay
   */
  _soon(delay) {
    const due = Math.max(performance.now() + delay, this._free);
    if (due >= this._due) return;
    clearTimeout(this._timer);
    this._due = due;
    this._timer = setTimeout(() => this._show(), due - performance.now());
  }

  _show() {
    const began = performance.now();
    const { run } = this;
    run.ahead = this._stream.ahead;
    this._head(run);
    this._planCard.hidden = !run.tasks.size && (run.over || !run.notes.length);
    this._offersCard.hidden = !run.over || run.tasks.size > 0 || run.state === "cancelled";
    if (!this._offersCard.hidden && !this._offers.hasChildNodes())
      this._offers.append(new TaskCatalog(this._api, (text) => this._listener.ask(text)).element);
    this._timeCard.hidden = this._taskCard.hidden = !run.tasks.size;
    this._graph.show(run);
    this._timeline.show(run);
    this._details.show(run);
    this._answer(run);
    this._due = Infinity;
    this._free = performance.now() + 3 * (performance.now() - began);
    if (!run.over) this._soon(run.state === "awaiting_approval" ? 1000 : 100);
  }

  /** @param {RunRecord} run */
  _head(run) {
    const state = JSON.stringify([run.state, run.failure]);
    if (state !== this._shownState) {
      this._shownState = state;
      this._title.textContent = titleOf(run);
      document.title = `${titleOf(run)} · HuggingGPT`;
      this._from.replaceChildren(...origin(run));
      this._inputs.replaceChildren(
        ...(run.spec.inputs || []).map((input) =>
          h("li", {}, input.artifact ? this._files.chip(input.artifact) : h("span.chip", {}, input.name)),
        ),
      );
      this._acts(run);
      this._badge.replaceChildren(badge(run.state));
      this._problems.replaceChildren(...(run.failure ? [notice(trouble(run))] : []));
    }
    this._took.textContent =
      run.began && run.state !== "awaiting_approval" ? duration((run.now - run.began) / 1000) : "";
    const text = planWords(run);
    if (this._plan.textContent !== text) this._plan.textContent = text;
    run.notes.slice(this._notes.children.length).forEach((note) => this._notes.append(h("li", {}, spoken(note.text))));
    this._notes.hidden = run.over && Boolean(run.answer);
  }

  /** @param {RunRecord} run */
  _acts(run) {
    const act = (/** @type {string} */ text, /** @type {string} */ kind, /** @type {() => void} */ does) =>
      h(`button.${kind}`, { type: "button", click: does }, text);
    const again = (/** @type {boolean} */ follow) => () => this._listener.again(run, follow);
    const waits = run.state === "awaiting_approval";
    const going = [
      waits && act("Run this plan", "primary", () => this._send("approve")),
      act("Cancel", "quiet", () => this._send("cancel")),
    ];
    this._actions.replaceChildren(
      ...(run.over
        ? [
            run.tasks.size && act("Save this plan", "quiet", () => this._listener.save(run)),
            act("Ask a follow-up", "quiet", again(true)),
            run.spec.pipeline
              ? h("a.button", { href: pipelineAddress(run.spec.pipeline) }, "Run on other files")
              : act("Ask again", "quiet", again(false)),
            act("Delete", "quiet", () => this._delete()),
          ]
        : going
      ).flatMap((each) => each || []),
    );
  }

  /** @param {"approve" | "cancel"} verb */
  async _send(verb) {
    const options =
      verb === "approve"
        ? { method: "POST", body: "{}", headers: { "content-type": "application/json" } }
        : { method: "POST" };
    try {
      await this._api.fetch(`/v1/runs/${encodeURIComponent(this.run.id)}/${verb}`, options);
    } catch (problem) {
      this._problems.replaceChildren(notice(problem, () => this._problems.replaceChildren()));
    }
  }

  _delete() {
    confirmDeletion(
      "Delete this run?",
      "Its plan, outputs and answer are deleted. This cannot be undone.",
      async () => {
        await this._api.fetch(`/v1/runs/${encodeURIComponent(this.run.id)}`, { method: "DELETE" });
        this._listener.go("/");
      },
    );
  }

  async _saveFiles() {
    this._saveAll.setAttribute("disabled", "");
    try {
      const files = this.run.outputs.map((artifact) => ({ name: artifact.name || "file", artifact }));
      await saveAll(this._api, `${this.run.id}.zip`, files);
    } catch (problem) {
      this._problems.replaceChildren(notice(problem, () => this._problems.replaceChildren()));
    } finally {
      this._saveAll.removeAttribute("disabled");
    }
  }

  /** @param {RunRecord} run */
  _answer(run) {
    const isRepeated = Boolean(run.failure) && !run.tasks.size;
    this._answerCard.hidden = isRepeated || (!run.answer && (run.over || !run.tasks.size || !run.outcome));
    this._answerCard.setAttribute("aria-busy", String(!run.over));
    const artifacts = run.artifacts;
    const state = `${run.answer.length} ${artifacts.size} ${run.decision !== null}`;
    if (state === this._shownAnswer) return;
    this._shownAnswer = state;
    this._prose.show(run.answer, artifacts);
    this._by.textContent = run.answer ? run.decision?.reason || "" : "The answer is written when all tasks have ended.";
    const gallery = run.outputs;
    this._madeCard.hidden = !gallery.length;
    this._saveAll.hidden = gallery.length < 2;
    const key = gallery.map(({ sha256 }) => sha256).join();
    if (key !== this._gallery) this._made.replaceChildren(...gallery.map((artifact) => this._files.figure(artifact)));
    this._gallery = key;
  }

  /** @param {import("./api.js").Problem} problem */
  _wrong(problem) {
    this._title.textContent = problem.status === 404 ? "There is no such run" : "This page cannot be loaded";
    this._from.replaceChildren(homeLink());
    this._seen(this.run.tasks.size > 0);
    this._problems.replaceChildren(notice(problem));
  }

  /** @param {boolean} on */
  _seen(on) {
    const cards = [this._planCard, this._answerCard, this._offersCard, this._madeCard, this._timeCard, this._taskCard];
    cards.forEach((each) => (each.hidden = !on));
  }

  /**
   * Announces events to screen readers.
   * @param {import("../types.js").RunEvent} event
   */
  _tell(event) {
    const task = this.run.tasks.get(event.task_id)?.task.task;
    if (event.plan_completed) this._listener.say(`The plan has ${plural(this.run.tasks.size, "task")}.`);
    if (event.task_ended) this._listener.say(`${task}: ${event.task_ended.state}.`);
    if (event.approval_requested) {
      this._listener.say("The plan awaits your approval.");
      this._listener.changed();
    }
    if (event.run_ended) {
      this._listener.say(`The run has ended: ${event.run_ended.state}.`);
      this._listener.changed();
    }
  }
}

/**
 * Links to the batch and pipeline of a run.
 * @param {RunRecord} run
 */
function origin({ batch, spec: { pipeline } }) {
  const what = batch?.index ? `Item ${batch.index} of ` : "Planning run of ";
  const of = batch ? [what, h("a", { href: batchAddress(batch.batch_id || "") }, "a batch")] : ["A run"];
  return pipeline ? [...of, " with pipeline ", pipelineLink(pipeline)] : batch ? of : [];
}

/**
 * The failure as a notice; if there is an answer, it refers to the answer.
 * @param {RunRecord} run that has failed, as a whole or in part
 */
function trouble(run) {
  const { answer, state } = run;
  const { message: text = "", remedy = "", reason } = run.failure || {};
  const content = { message: text, remedy, mild: state !== "failed" };
  if (reason === UNPLANNABLE && !run.tasks.size)
    return { ...content, remedy: "Choose one of the tasks below, or say it in other words." };
  const failed = run.failedTasks;
  if (answer && state === "incomplete") {
    const message = failed.length
      ? `Some tasks failed: ${failed.map(named).join(", ")}. The answer gives the reasons.`
      : "Part of the request could not be done. The answer gives the reasons.";
    return { ...content, message };
  }
  const files = failed.flatMap((task) => task.files).filter((name) => !content.message.includes(name));
  return files.length ? { ...content, message: `${files.join(", ")}: ${content.message}` } : content;
}

/** @param {{task: string, files: string[]}} failed */
function named({ task, files }) {
  return files.length ? `${task} on ${files.join(", ")}` : task;
}

/** @param {RunRecord} run */
function planWords(run) {
  const tasks = [...run.tasks.values()];
  if (!run.planDecision) return tasks.length ? `${plural(tasks.length, "task")} so far…` : "";
  const { controller, llm_model: llm, fell_back_because: fell } = run.planDecision;
  /** @type {Record<string, string>} */
  const planners = { llm: `by ${llm || "an LLM"}`, embedded: "without an LLM", supplied: "by the client" };
  const by = planners[controller || ""] || `by ${controller}`;
  const done = tasks.filter(({ state }) => GOOD.has(state)).length;
  return [`${plural(tasks.length, "task")}, planned ${by}`, `${done} done`, fell].filter(Boolean).join("; ");
}
