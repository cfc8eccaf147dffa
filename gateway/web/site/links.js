/** Titles and addresses of runs, pipelines and batches. */

import { h } from "./element.js";

const UNNAMED = "Custom plan";

/** @param {{spec?: import("../types.js").Spec, batch?: import("../types.js").BatchOfRun | null}} object a run or a batch */
export function titleOf({ spec, batch }) {
  return batch?.name || spec?.request || spec?.pipeline?.name || UNNAMED;
}

/** @param {string} run its id */
export function runAddress(run) {
  return address("run", run);
}

/** @param {string} batch its id */
export function batchAddress(batch) {
  return address("batch", batch);
}

/** @param {{name: string, version?: number}} pipeline version 0: the latest */
export function pipelineAddress({ name, version }) {
  return address("pipeline", name) + (version ? `&version=${version}` : "");
}

export function homeLink() {
  return h("a", { href: "/" }, "Back to the start");
}

/** @param {{name: string, version?: number}} pipeline */
export function pipelineLink(pipeline) {
  const text = pipeline.version ? `${pipeline.name}, version ${pipeline.version}` : pipeline.name;
  return h("a", { href: pipelineAddress(pipeline) }, text);
}

/**
 * @param {string} kind
 * @param {string} id
 */
function address(kind, id) {
  return `/?${kind}=${encodeURIComponent(id)}`;
}
