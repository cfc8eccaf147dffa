/** Uploads files concurrently; a file that was uploaded or rejected is not sent again. */

const AT_ONCE = 4;
const TRIES = 8;

/** Statuses of a rejected file. */
const FILE_ERRORS = new Set([400, 413, 415, 422]);

/** Statuses of temporary overload. */
const BUSY = new Set([429, 503]);

/** Retention of an unused upload, in seconds. */
const RETENTION = 24 * 3600;

export class Uploads {
  /**
   * @param {import("./api.js").Api} api
   * @param {AbortSignal} [signal] aborts the uploads
   */
  constructor(api, signal) {
    this._api = api;
    this._signal = signal;
    /** @type {WeakMap<File, import("../types.js").Artifact>} */
    this._sent = new WeakMap();
    /** @type {WeakMap<File, import("./api.js").Problem>} */
    this._refused = new WeakMap();
  }

  /**
   * @param {File[]} files
   * @param {(count: number) => void} onProgress called with the number of processed files
   * @throws {import("./api.js").Problem} the gateway does not accept uploads
   */
  async send(files, onProgress) {
    const waiting = files.values();
    let processed = 0;
    let stopped = false;
    const work = async () => {
      for (const file of waiting) {
        if (stopped) return;
        await this._one(file);
        onProgress((processed += 1));
      }
    };
    const working = Array.from({ length: AT_ONCE }, work);
    await Promise.all(working).finally(() => (stopped = true));
  }

  /**
   * @param {File} file
   * @returns {import("../types.js").Artifact | undefined} the artifact of an uploaded file
   */
  artifact(file) {
    return this._sent.get(file);
  }

  /**
   * @param {File} file
   * @returns {import("./api.js").Problem | undefined} the error of a rejected file
   */
  problem(file) {
    return this._refused.get(file);
  }

  /**
   * An uploaded file as the inputs of a batch's item; of a rejected file, the item's failure.
   * @param {File} file
   * @param {string} [name] of the input
   */
  item(file, name = "file1") {
    const problem = this.problem(file);
    return problem
      ? { failure: { reason: problem.code, message: problem.message, remedy: problem.remedy } }
      : { inputs: [{ name, artifact: this.artifact(file) }] };
  }

  /** @param {File} file */
  async _one(file) {
    if (this._sent.has(file) || this._refused.has(file)) return;
    try {
      this._sent.set(file, await this._retry(() => this._post(file)));
    } catch (problem) {
      if (!FILE_ERRORS.has(problem.status)) throw problem;
      this._refused.set(file, problem);
    }
  }

  /**
   * Uploads a file; returns its artifact.
   * @param {File} file
   * @returns {Promise<import("../types.js").Artifact>}
   */
  async _post(file) {
    const body = new FormData();
    body.append("expires_after[anchor]", "created_at");
    body.append("expires_after[seconds]", String(RETENTION));
    body.append("file", file, file.name);
    const { artifact } = await this._api.json("/v1/files", { method: "POST", body, signal: this._signal });
    return artifact;
  }

  /**
   * Retries while the gateway is overloaded.
   * @template T
   * @param {() => Promise<T>} attempt
   * @returns {Promise<T>}
   */
  async _retry(attempt) {
    for (let tries = 1; ; tries += 1) {
      try {
        return await attempt();
      } catch (problem) {
        if (!BUSY.has(problem.status) || tries === TRIES) throw problem;
        await new Promise((resolve) => setTimeout(resolve, 1000 * Math.max(1, problem.pause)));
      }
    }
  }
}
