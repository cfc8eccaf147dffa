/** A pipeline's plan as a RunRecord, for the graph and the details. */

import { RunRecord } from "./record.js";

export class PlanRecord extends RunRecord {
  /** @param {import("../types.js").Pipeline} pipeline with its plan */
  constructor(pipeline) {
    super(`${pipeline.name} ${pipeline.version}`);
    this._outputs = (pipeline.outputs || []).map(({ name }) => name);
    this.spec = { request: "", inputs: pipeline.inputs || [] };
    for (const task of pipeline.plan || []) this.tasks.set(task.id, taskRecord(task));
  }

  get outcome() {
    const names = this._outputs;
    if (!names.length) return null;
    return { name: names.length > 1 ? `${names.length} results` : names[0], about: `Outputs: ${names.join(", ")}` };
  }

  /** @param {string} input */
  origin(input) {
    return `the parameter ${input}`;
  }
}

/**
 * @param {import("../types.js").Task} task
 * @returns {import("./record.js").TaskRecord}
 */
function taskRecord(task) {
  const { pinned_model: model, pinned_revision: revision } = task;
  return {
    id: task.id,
    task,
    state: model ? "pinned" : "open",
    planned: 0,
    candidates: model ? [{ model_id: model, revision }] : [],
    decision: revision ? { controller: "pinned", reason: `Always at revision ${revision.slice(0, 10)}.` } : null,
    waits: [],
    attempts: [],
  };
}
