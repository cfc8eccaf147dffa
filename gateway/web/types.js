/**
 * Types of the API's JSON that the page uses; they are part of no module at run time.
 *
 * @typedef {{sha256: string, media_type?: string, size_bytes?: number, name?: string}} Artifact
 * @typedef {{artifact: Artifact}} ArtifactValue
 * @typedef {null | boolean | number | string | JsonArray | {[key: string]: Json}} Json
 * @typedef {string | ArtifactValue | {json: Json} | Json} Value an output of a task: text, a file, or JSON
 *
 * @typedef {{task_id?: number, output?: string, input?: string}} Reference to an output of a task or to an input
 * @typedef {{id: number, task: string, arguments?: Record<string, Json>, parameters?: Record<string, Json>,
 *   source?: string, pinned_model?: string, pinned_revision?: string}} Task
 * @typedef {{name: string, modality?: string, required?: boolean, many?: boolean, description?: string}} Port
 * @typedef {{name: string, description: string, examples?: string[]}} TaskType
 *
 * @typedef {{model_id?: string, revision?: string, expert?: string, role?: string, score?: number,
 *   reason?: string}} Candidate
 * @typedef {{controller?: string, reason?: string, llm_model?: string, fell_back_because?: string}} Decision
 * @typedef {{reason?: string, message?: string, remedy?: string, code?: string}} Failure
 * @typedef {{busy?: number, elapsed?: number}} Usage
 * @typedef {{by?: Candidate, outputs?: Record<string, Value>, failure?: Failure}} TaskResult
 *
 * @typedef {{name: string, artifact?: Artifact, text?: string, json?: Json, modality?: string}} Input
 * @typedef {{name: string, version?: number}} PipelineRef
 * @typedef {{request?: string, inputs?: Input[], pipeline?: PipelineRef, mode?: string, policy?: string}} Spec
 * @typedef {{batch_id?: string, index?: number, name?: string}} BatchOfRun
 * @typedef {{run_id: string, state: string, spec: Spec, create_time: string, batch?: BatchOfRun}} RunSummary
 *
 * @typedef {{run_id: string, sequence: number, time: string, task_id: number, attempt: number,
 *   run_accepted?: {spec: Spec, batch?: BatchOfRun, conversation_id?: string},
 *   plan_note?: {kind?: string, text: string},
 *   task_planned?: {task: Task},
 *   plan_completed?: {decision?: Decision},
 *   approval_requested?: object,
 *   plan_approved?: {plan?: Task[]},
 *   task_selected?: {candidates: Candidate[], decision?: Decision},
 *   task_waiting?: {expert?: string, reason?: string},
 *   task_started?: {by?: Candidate},
 *   task_progress?: {fraction?: number, message?: string},
 *   attempt_failed?: {failure?: Failure, next?: string},
 *   task_ended?: {state: string, result?: TaskResult},
 *   answer_chunk?: {text?: string, decision?: Decision},
 *   taken_over?: object,
 *   replanning?: object,
 *   run_ended?: {state: string, failure?: Failure, usage?: Usage}}} RunEvent
 *
 * @typedef {{name: string, version: number, description?: string, create_time?: string, source_run_id?: string,
 *   policy?: string, inputs?: Port[], outputs?: Port[], plan?: Task[]}} Pipeline
 *
 * @typedef {{total: number, completed?: number, incomplete?: number, failed?: number, cancelled?: number,
 *   running?: number, waiting?: number}} Counts number of items, in all and by state
 * @typedef {{batch_id: string, state: string, spec: Spec, counts: Counts, pipeline?: Pipeline, failure?: Failure,
 *   create_time: string, end_time?: string, items_per_second?: number, remaining?: number,
 *   waiting_for?: string}} Batch
 * @typedef {{index: number, name?: string, state: string, run_id?: string, usage?: Usage, failure?: Failure,
 *   outputs?: Record<string, Value>}} Item
 * @typedef {{seconds?: {median?: number, p95?: number}, slowest?: {index: number, name?: string, seconds: number}[],
 *   errors?: {message?: string, count: number, names?: string[]}[], input_tokens?: number, output_tokens?: number,
 *   cost?: number}} Summary
 */

/**
 * An array of JSON; a class, since TypeScript does not resolve a type of JSDoc that is an array of itself.
 * @extends {Array<Json>}
 */
export class JsonArray extends Array {}
