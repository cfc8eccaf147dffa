/** What runs, pipelines and batches are called, and where they are seen. */

import { h } from "./element.js";

const UNNAMED = "A plan of its own";

/** @param {{spec?: any, batch?: any}} named a run or a batch */
export function titled({ spec, batch }) {
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

/** @param {{name: string, version?: number}} pipeline */
export function pipelineLink(pipeline) {
  const words = pipeline.version ? `${pipeline.name}, version ${pipeline.version}` : pipeline.name;
  return h("a", { href: pipelineAddress(pipeline) }, words);
}

function address(kind, id) {
  return `/?${kind}=${encodeURIComponent(id)}`;
}
