/** Details of each task: model and reason, attempts, inputs and outputs. */

import { h } from "./element.js";
import { UNEXPLAINED, sentence, spoken, withoutCommands } from "./notice.js";
import { marks, overlay } from "./overlay.js";
import { artifactsOf, model, references, seconds } from "./record.js";
import { badge } from "./state.js";
import { shown } from "./values.js";
import { duration } from "./format.js";

/**
 * @typedef {import("./record.js").RunRecord} RunRecord
 * @typedef {import("./record.js").TaskRecord} TaskRecord
 * @typedef {import("../types.js").Json} Json
 * @typedef {{state: string, stale: boolean, by: HTMLElement, summary: HTMLElement, body: HTMLElement,
 *   element: HTMLDetailsElement, fill: () => void}} Known stale: its body does not show the latest state
 */

export class Details {
  /**
   * @param {import("./files.js").Files} files
   * @param {import("./api.js").Api} api
   */
  constructor(files, api) {
    this._files = files;
    this._api = api;
    /** @type {Map<number, Known>} */
    this._known = new Map();
    this.element = h("div.details");
  }

  /** @param {import("./record.js").RunRecord} run */
  show(run) {
    for (const task of run.tasks.values()) {
      const known = this._known.get(task.id) || this._made(task);
      const state = JSON.stringify([task.state, task.candidates.length, task.attempts, task.waits.length, run.over]);
      if (known.state !== state) this._changed(known, state, task);
      const by = [model(task), taken(task, run.now)].filter(Boolean).join(" · ");
      if (known.by.textContent !== by) known.by.textContent = by;
      if (known.stale && known.element.open) this._fill(known, run, task);
      known.fill = () => known.stale && this._fill(known, run, task);
    }
    for (const [id, { element }] of this._known) if (!run.tasks.has(id)) (element.remove(), this._known.delete(id));
  }

  /** @param {number} id of the task to open and scroll to */
  open(id) {
    const known = this._known.get(id);
    if (!known) return;
    known.element.open = true;
    known.element.scrollIntoView({
      block: "nearest",
      behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
    });
    known.summary.focus({ preventScroll: true });
  }

  /**
   * @param {Known} known
   * @param {string} state
   * @param {TaskRecord} task
   */
  _changed(known, state, task) {
    Object.assign(known, { state, stale: true });
    known.summary.lastChild?.replaceWith(badge(task.state));
  }

  /**
   * @param {TaskRecord} task
   * @returns {Known}
   */
  _made(task) {
    const by = h("span.task-by");
    const summary = h("summary", {}, headline(task), by, h("span"));
    const body = h("div.task-body");
    const id = `task-${task.id}`;
    const toggle = (/** @type {{target: HTMLDetailsElement}} */ { target }) => target.open && known.fill();
    const element = h("details.task-details", { id, toggle }, summary, body);
    /** @type {Known} */
    const known = { state: "", stale: true, by, summary, body, element, fill: () => {} };
    this._known.set(task.id, known);
    this.element.append(known.element);
    return known;
  }

  /**
   * @param {Known} known
   * @param {RunRecord} run
   * @param {TaskRecord} task
   */
  _fill(known, run, task) {
    known.stale = false;
    const parts = [
      trouble(task),
      why(task),
      candidates(task),
      attempts(task, run.now),
      this._inputs(run, task),
      this._outputs(run, task),
      parameters(task),
    ];
    known.body.replaceChildren(...parts.flatMap((each) => each || []));
  }

  /**
   * @param {RunRecord} run
   * @param {TaskRecord} task
   */
  _inputs(run, task) {
    const ports = Object.entries(task.task.arguments || {});
    return ports.length
      ? part(
          "Inputs",
          h(
            "div.ports",
            {},
            ports.map(([name, argument]) => port(name, [...origin(run, argument), this._given(run, argument)])),
          ),
        )
      : null;
  }

  /**
   * @param {RunRecord} run
   * @param {Json} argument
   * @returns {HTMLElement | null}
   */
  _given(run, argument) {
    if (Array.isArray(argument))
      return h(
        "div",
        {},
        argument.map((item) => this._given(run, item)),
      );
    const value = resolved(run, argument);
    if (value === undefined) return null;
    const [artifact] = artifactsOf(value);
    return artifact ? this._files.chip(artifact) : shown(value, this._files);
  }

  /**
   * @param {RunRecord} run
   * @param {TaskRecord} task
   */
  _outputs(run, task) {
    const outputs = Object.entries(task.result?.outputs || {});
    if (!outputs.length) return null;
    const drawn = this._overlaid(run, task);
    return part(
      "Outputs",
      h(
        "div.ports",
        {},
        drawn && port("found", [drawn]),
        outputs.map(([name, value]) => port(name, [shown(value, this._files)])),
      ),
    );
  }

  /**
   * The input image with detections or mask; null if the task has none.
   * @param {RunRecord} run
   * @param {TaskRecord} task
   */
  _overlaid(run, task) {
    const picture = Object.values(task.task.arguments || {})
      .flatMap((argument) => artifactsOf(resolved(run, argument) ?? null))
      .find((artifact) => artifact.media_type?.startsWith("image/"));
    const outputs = task.result?.outputs || {};
    const found = marks(Object.values(outputs).filter((value) => !artifactsOf(value).length));
    const [mask] = artifactsOf(outputs.mask ?? null);
    if (!picture || !this._files.shows(picture) || (!found.length && !mask)) return null;
    return overlay(this._files, picture, found, mask ? this._api.address(mask) : null);
  }
}

/** @param {TaskRecord} task */
function headline(task) {
  return [
    h("span.task-number", {}, task.id),
    h("span.task-name", {}, task.task.task, task.task.source && h("q", {}, task.task.source)),
  ];
}

/**
 * @param {TaskRecord} task
 * @param {number} now
 */
function taken(task, now) {
  const took = seconds(task, now);
  return took === undefined ? "" : duration(took);
}

/** @param {TaskRecord} task */
function trouble(task) {
  const failure = task.result?.failure;
  return failure
    ? h(
        "div.problem",
        {},
        h("p", {}, h("strong", {}, withoutCommands(failure.message || "") || UNEXPLAINED)),
        failure.remedy && h("p", {}, spoken(sentence(withoutCommands(failure.remedy)))),
      )
    : null;
}

/** @param {TaskRecord} task */
function why(task) {
  if (!task.decision) return null;
  /** @type {Record<string, string>} */
  const controllers = {
    rank: "by ranking",
    llm: `by ${task.decision.llm_model || "an LLM"}`,
    pinned: "pinned by the plan",
    routed: "by the routing table",
  };
  const controller = task.decision.controller || "";
  const by = controllers[controller] || controller;
  const fell = task.decision.fell_back_because ? ` ${task.decision.fell_back_because}` : "";
  return part(
    "Why this model",
    h("p", {}, task.decision.reason || "No reason given.", " ", h("small", {}, `Chosen ${by}.${fell}`)),
  );
}

/** @param {TaskRecord} task */
function candidates(task) {
  if (task.candidates.length < 2) return null;
  const row = (/** @type {import("../types.js").Candidate} */ candidate) =>
    h(
      "tr",
      {},
      h("td", {}, candidate.model_id),
      h("td", {}, candidate.expert),
      h("td", {}, candidate.role || ""),
      h("td.number", {}, candidate.score),
      h("td", {}, candidate.reason || ""),
    );
  return part("Models considered", grid(["model", "expert", "role", "score", "reason"], task.candidates.map(row)));
}

/**
 * @param {TaskRecord} task
 * @param {number} now
 */
function attempts(task, now) {
  if (!task.attempts.length) return null;
  const row = (/** @type {import("./record.js").Attempt} */ attempt) => {
    const how = attempt.failure
      ? [attempt.failure.message, attempt.next && `next: ${attempt.next}`].filter(Boolean).join("; ")
      : attempt.ended
        ? "done"
        : attempt.progress?.message || "running";
    const by = `${attempt.by.model_id || ""}${attempt.by.revision ? ` @${attempt.by.revision.slice(0, 10)}` : ""}`;
    return h(
      "tr",
      {},
      h("td.number", {}, attempt.number),
      h("td", {}, by),
      h("td", {}, attempt.by.expert || ""),
      h("td.number", {}, duration(((attempt.ended ?? now) - attempt.began) / 1000)),
      h("td", {}, how),
    );
  };
  return part("Attempts", grid(["", "model", "expert", "duration", "outcome"], task.attempts.map(row)));
}

/** @param {TaskRecord} task */
function parameters(task) {
  const given = task.task.parameters;
  return given && Object.keys(given).length
    ? part("Parameters", h("p.text", {}, h("code", {}, JSON.stringify(given))))
    : null;
}

/**
 * @param {string[]} columns
 * @param {HTMLElement[]} rows
 */
function grid(columns, rows) {
  const head = h(
    "thead",
    {},
    h(
      "tr",
      {},
      columns.map((column) => h("th", { scope: "col" }, column || "no.")),
    ),
  );
  return h("section.scroll", { tabindex: "0" }, h("table", {}, head, h("tbody", {}, rows)));
}

/**
 * @param {string} title
 * @param {HTMLElement} content
 */
function part(title, content) {
  return h("section.part", {}, h("h3", {}, title), content);
}

/**
 * @param {string} name
 * @param {import("./element.js").Child[]} content
 */
function port(name, content) {
  return h("div.port", {}, h("h4", {}, name), content);
}

/**
 * @param {RunRecord} run
 * @param {Json} argument
 */
function origin(run, argument) {
  return references(argument).map(({ task_id, output, input }) =>
    h(
      "small.origin",
      {},
      input
        ? run.origin(input)
        : `${output} of task ${task_id}, ${run.tasks.get(task_id ?? 0)?.task.task || "a missing task"}`,
    ),
  );
}

/**
 * @param {RunRecord} run
 * @param {Json} argument
 * @returns {import("../types.js").Value | undefined}
 */
function resolved(run, argument) {
  if (argument === null || typeof argument !== "object" || Array.isArray(argument)) return argument;
  const { task_id: id, output, input: name } = /** @type {import("../types.js").Reference} */ (argument);
  if (id !== undefined) return run.tasks.get(id)?.result?.outputs?.[output || ""];
  if (name === undefined) return argument;
  const input = (run.spec.inputs || []).find((each) => each.name === name);
  if (input?.artifact) return { artifact: input.artifact };
  return input?.text ?? (input && "json" in input ? { json: input.json ?? null } : undefined);
}
