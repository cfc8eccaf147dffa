/** Timeline of a run: a row for planning, for each task, and for the answer. */

import { h } from "./element.js";
import { stateClass, stateLabel } from "./state.js";
import { duration } from "./format.js";

/**
 * @typedef {{from: number, to: number, state: string, title: string}} Span times in milliseconds
 * @typedef {{key: string, task?: number, name: string, still: string, spans: Span[]}} Row still: shown without spans
 * @typedef {{track: HTMLElement, time: HTMLElement, element: HTMLElement}} RowElements
 */

export class Timeline {
  /** @param {(task: number) => void} choose called with the id of a selected task */
  constructor(choose) {
    this._choose = choose;
    /** @type {Map<string, RowElements>} */
    this._rows = new Map();
    this._list = h("ol.rows");
    this._axis = h("div.axis", { "aria-hidden": "true" });
    this.element = h("div.timeline", {}, this._list, this._axis);
  }

  /** @param {import("./record.js").RunRecord} run */
  show(run) {
    const whole = Math.max(run.now - run.began, 1);
    const rows = rowsOf(run);
    for (const row of rows) this._row(row, run.began, whole);
    const wanted = new Set(rows.map(({ key }) => key));
    for (const [key, { element }] of this._rows) if (!wanted.has(key)) (element.remove(), this._rows.delete(key));
    this._ticks(whole / 1000);
  }

  /**
   * @param {Row} row
   * @param {number} began
   * @param {number} whole
   */
  _row(row, began, whole) {
    const known = this._rows.get(row.key) || this._made(row);
    const total = row.spans.reduce((sum, span) => sum + (span.to - span.from), 0) / 1000;
    known.time.textContent = row.spans.length ? duration(total) : row.still;
    while (known.track.children.length > row.spans.length) known.track.lastChild?.remove();
    row.spans.forEach((span, at) => {
      const bar =
        /** @type {HTMLElement | undefined} */ (known.track.children[at]) || known.track.appendChild(h("span"));
      bar.className = `span is-${stateClass(span.state)}`;
      bar.title = span.title;
      bar.style.setProperty("--from", String((span.from - began) / whole));
      bar.style.setProperty("--long", String((span.to - span.from) / whole));
    });
  }

  /** @param {Row} row */
  _made(row) {
    const { task } = row;
    const name = task
      ? h("button.row-name", { type: "button", click: () => this._choose(task) }, row.name)
      : h("span.row-name", {}, row.name);
    const [track, time] = [h("span.track"), h("span.row-time")];
    const known = { track, time, element: h("li", {}, name, track, time) };
    this._rows.set(row.key, known);
    const answer = this._rows.get("answer")?.element;
    this._list.insertBefore(known.element, row.key === "answer" ? null : answer || null);
    return known;
  }

  /** @param {number} whole */
  _ticks(whole) {
    const step = stepFor(whole, Math.max(2, Math.min(4, Math.floor(this._axis.clientWidth / 70))));
    const ticks = Math.floor(whole / step) + 1;
    while (this._axis.children.length > ticks) this._axis.lastChild?.remove();
    for (let tick = 0; tick < ticks; tick += 1) {
      const mark =
        /** @type {HTMLElement | undefined} */ (this._axis.children[tick]) || this._axis.appendChild(h("span"));
      mark.textContent = `${Number((tick * step).toPrecision(3))} s`;
      mark.style.setProperty("--from", String((tick * step) / whole));
    }
  }
}

/**
 * Tick distance of 1, 2 or 5 times a power of ten, for at most `most` ticks.
 * @param {number} whole
 * @param {number} most
 */
function stepFor(whole, most) {
  const rough = whole / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((factor) => factor * power >= rough) || 10);
}

/**
 * @param {import("./record.js").RunRecord} run
 * @returns {Row[]}
 */
function rowsOf(run) {
  const planning = {
    key: "plan",
    name: "plan",
    still: "",
    spans: [
      { from: run.began, to: run.planned || run.now, state: run.planned ? "succeeded" : "running", title: "Planning" },
    ],
  };
  const tasks = [...run.tasks.values()].map((task) => ({
    key: `task ${task.id}`,
    task: task.id,
    name: `${task.id} ${task.task.task}`,
    still: stateLabel(task.state),
    spans: spansOf(task, run.now),
  }));
  const end = run.ended || run.now;
  const answer = {
    key: "answer",
    name: "answer",
    still: "",
    spans: [{ from: run.answering, to: end, state: run.over ? "succeeded" : "running", title: "Writing the answer" }],
  };
  return run.began ? [planning, ...tasks, ...(run.answering ? [answer] : [])] : [];
}

/**
 * @param {import("./record.js").TaskRecord} task
 * @param {number} now
 * @returns {Span[]}
 */
function spansOf(task, now) {
  const waits = task.waits.map((wait) => ({
    from: wait.since,
    to: wait.until ?? now,
    state: "waiting",
    title: `Waiting. ${wait.reason}`,
  }));
  const attempts = task.attempts.map((attempt) => {
    const state = attempt.failure
      ? "failed"
      : attempt.ended
        ? task.state === "cancelled"
          ? "cancelled"
          : "succeeded"
        : "running";
    const took = duration(((attempt.ended ?? now) - attempt.began) / 1000);
    return {
      from: attempt.began,
      to: attempt.ended ?? now,
      state,
      title: `Attempt ${attempt.number} by ${attempt.by.model_id || "?"}: ${took}`,
    };
  });
  return [...waits, ...attempts];
}
