/** State of a run, folded from its events, independent of the page. */

/**
 * @typedef {import("../types.js").RunEvent} RunEvent
 * @typedef {{number: number, by: import("../types.js").Candidate, began: number, ended?: number,
 *   failure?: import("../types.js").Failure, next?: string, progress?: {fraction: number, message: string}}} Attempt
 * @typedef {{since: number, until?: number, expert: string, reason: string}} Wait
 * @typedef {{id: number, task: import("../types.js").Task, state: string, planned: number, ended?: number,
 *   candidates: import("../types.js").Candidate[], decision?: import("../types.js").Decision | null, waits: Wait[],
 *   attempts: Attempt[], result?: import("../types.js").TaskResult}} TaskRecord times in milliseconds
 */

export const ENDED = new Set(["completed", "incomplete", "failed", "cancelled"]);
export const GOOD = new Set(["succeeded", "reused"]);
/** Modes without an answer. */
const SILENT = new Set(["plan", "results"]);

const OVER = new Set([...GOOD, "failed", "skipped", "cancelled"]);

export class RunRecord {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** @type {import("../types.js").Spec} */
    this.spec = { request: "", inputs: [] };
    /** @type {import("../types.js").BatchOfRun | null} */
    this.batch = null;
    this.state = "queued";
    /** @type {Map<number, TaskRecord>} */
    this.tasks = new Map();
    /** @type {{text: string}[]} */
    this.notes = [];
    this.answer = "";
    /** @type {import("../types.js").Decision | null} */
    this.decision = null;
    /** @type {import("../types.js").Decision | null} */
    this.planDecision = null;
    /** @type {import("../types.js").Failure | null} */
    this.failure = null;
    /** @type {import("../types.js").Usage | null} */
    this.usage = null;
    this.conversation = "";
    this.began = 0;
    this.planned = 0;
    this.answering = 0;
    this.ended = 0;
    this.latest = 0;
    this.takeovers = 0;
    /** Offset of the local clock from the server's, in milliseconds. */
    this.ahead = 0;
  }

  get over() {
    return ENDED.has(this.state);
  }

  /** Time of the run's display, in milliseconds: its end, or the present by the server's clock. */
  get now() {
    return this.ended || Math.max(this.latest, Date.now() - this.ahead);
  }

  /**
   * The final output in addition to the tasks' outputs, if any.
   * @returns {{name: string, about: string} | null}
   */
  get outcome() {
    return SILENT.has(this.spec.mode || "") ? null : { name: "answer", about: "The answer" };
  }

  /**
   * Describes the origin of an input.
   * @param {string} _input its name
   */
  origin(_input) {
    return "from your request";
  }

  /** Input and output files without duplicates, by digest. */
  get artifacts() {
    return byDigest([...(this.spec.inputs || []).flatMap(({ artifact }) => artifact || []), ...this._outputFiles]);
  }

  /** Output files of tasks without duplicates, in the order of the tasks. */
  get outputs() {
    return [...byDigest(this._outputFiles).values()];
  }

  get _outputFiles() {
    return [...this.tasks.values()].flatMap(({ result }) => Object.values(result?.outputs || {}).flatMap(artifactsOf));
  }

  /** Failed tasks, each with the names of the files that it depends on. */
  get failedTasks() {
    return [...this.tasks.values()]
      .filter(({ state }) => state === "failed")
      .map((task) => ({ task: task.task.task, files: this._files(task) }));
  }

  /**
   * Names of the input files that a task depends on, directly or through other tasks.
   * @param {TaskRecord} start
   */
  _files(start) {
    /** @type {Set<string>} */
    const names = new Set();
    const waiting = [start];
    for (const task of waiting) {
      for (const { input, task_id: id } of Object.values(task.task.arguments || {}).flatMap(references)) {
        const name = (this.spec.inputs || []).find((each) => each.name === input)?.artifact?.name;
        const before = id === undefined ? undefined : this.tasks.get(id);
        if (name) names.add(name);
        if (before && !waiting.includes(before)) waiting.push(before);
      }
    }
    return [...names];
  }

  /** @param {RunEvent} event */
  apply(event) {
    const time = Date.parse(event.time);
    this.latest = time;
    for (const [kind, take] of Object.entries(TAKES)) {
      if (kind in event) take(this, /** @type {any} */ (event)[kind], time, this.tasks.get(event.task_id), event);
    }
  }
}

/**
 * Changes by kind of event, with the body of the event.
 * @type {Record<string, (run: RunRecord, what: any, time: number, task: TaskRecord | undefined, event: RunEvent) => void>}
 */
const TAKES = {
  run_accepted(run, what, time) {
    run.spec = what.spec;
    run.batch = what.batch || null;
    run.conversation = what.conversation_id || "";
    run.began = time;
    run.state = "running";
  },
  plan_note: (run, note) => run.notes.push(note),
  task_planned: (run, { task }, time) => addTask(run, task, time),
  plan_completed(run, what, time) {
    run.planDecision = what.decision || null;
    run.planned = time;
  },
  approval_requested: (run) => (run.state = "awaiting_approval"),
  plan_approved(run, what, time) {
    run.state = "running";
    if (!what.plan) return;
    run.tasks.clear();
    what.plan.forEach((/** @type {import("../types.js").Task} */ each) => addTask(run, each, time));
  },
  task_selected(run, what, time, task) {
    if (task) Object.assign(task, { candidates: what.candidates, decision: what.decision });
  },
  task_waiting(run, what, time, task) {
    if (!task) return;
    task.state = "waiting";
    task.waits.push({ since: time, expert: what.expert || "", reason: what.reason || "" });
  },
  task_started(run, what, time, task, event) {
    if (!task) return;
    endActive(task, time);
    task.state = "running";
    task.attempts.push({ number: event.attempt, by: what.by || {}, began: time });
  },
  task_progress(run, what, time, task) {
    const attempt = task?.attempts.at(-1);
    if (attempt) attempt.progress = { fraction: what.fraction || 0, message: what.message || "" };
  },
  attempt_failed(run, what, time, task) {
    if (!task) return;
    endActive(task, time);
    task.state = "waiting";
    const attempt = task.attempts.at(-1);
    if (attempt) Object.assign(attempt, { failure: what.failure || {}, next: what.next || "" });
  },
  task_ended(run, what, time, task) {
    if (!task) return;
    endActive(task, time);
    Object.assign(task, { state: what.state, result: what.result, ended: time });
    const attempt = task.attempts.at(-1);
    if (attempt && what.result?.failure) attempt.failure ??= what.result.failure;
  },
  answer_chunk(run, what, time) {
    run.answering ||= time;
    run.answer += what.text || "";
    run.decision = what.decision || run.decision;
  },
  taken_over: (run) => (run.takeovers += 1),
  replanning: (run) => (run.planned = 0),
  run_ended(run, what, time) {
    Object.assign(run, { state: what.state, failure: what.failure || null, usage: what.usage || null, ended: time });
    for (const task of run.tasks.values())
      if (!OVER.has(task.state) && run.state === "cancelled") task.state = "cancelled";
  },
};

/**
 * The file that a value is; none for other values.
 * @param {import("../types.js").Value} value
 * @returns {import("../types.js").Artifact[]}
 */
export function artifactsOf(value) {
  return value && typeof value === "object" && "artifact" in value
    ? [/** @type {import("../types.js").Artifact} */ (value.artifact)]
    : [];
}

/** @param {import("../types.js").Artifact[]} artifacts */
function byDigest(artifacts) {
  return new Map(artifacts.map((artifact) => [artifact.sha256, artifact]));
}

/**
 * @param {RunRecord} run
 * @param {import("../types.js").Task} task
 * @param {number} time
 */
function addTask(run, task, time) {
  run.tasks.set(task.id, {
    id: task.id,
    task,
    state: "planned",
    planned: time,
    candidates: [],
    waits: [],
    attempts: [],
  });
}

/**
 * Ends the active attempt and wait of a task.
 * @param {TaskRecord} task
 * @param {number} time
 */
function endActive(task, time) {
  const attempt = task.attempts.at(-1);
  if (attempt) attempt.ended ??= time;
  const wait = task.waits.at(-1);
  if (wait) wait.until ??= time;
}

/**
 * Lists the references in an argument, at any depth.
 * @param {import("../types.js").Json} argument
 * @returns {import("../types.js").Reference[]}
 */
export function references(argument) {
  if (Array.isArray(argument)) return argument.flatMap(references);
  if (argument && typeof argument === "object" && ("task_id" in argument || "input" in argument)) return [argument];
  return [];
}

/** @param {TaskRecord} task */
export function model(task) {
  return task.result?.by?.model_id || task.attempts.at(-1)?.by.model_id || task.candidates[0]?.model_id || "";
}

/**
 * Duration of a task in seconds, including waiting; undefined before its start.
 * @param {TaskRecord} task
 * @param {number} now
 */
export function seconds(task, now) {
  if (task.state === "reused") return undefined;
  const began = task.attempts[0]?.began;
  return began === undefined ? undefined : ((task.ended || now) - began) / 1000;
}
