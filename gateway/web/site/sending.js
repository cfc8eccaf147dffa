/** Files on their way into the house: a few at once, each once, however often one tries again. */

const AT_ONCE = 4;
const TRIES = 8;

/** What the house says of a file, not of itself. */
const ITS_FAULT = new Set([400, 413, 415, 422]);

/** What passes by itself. */
const BUSY = new Set([429, 503]);

/** How long a file is kept that nothing has been done with, in seconds. */
const KEPT = 24 * 3600;

export class Sending {
  /**
   * @param {import("./api.js").Api} api
   * @param {AbortSignal} signal ends it
   */
  constructor(api, signal) {
    this._api = api;
    this._signal = signal;
    this._sent = new WeakMap();
    this._refused = new WeakMap();
  }

  /**
   * @param {File[]} files
   * @param {(count: number) => void} told how many have been dealt with
   * @throws {import("./api.js").Problem} the house takes none
   */
  async send(files, told) {
    const waiting = files.values();
    let dealt = 0;
    let stopped = false;
    const work = async () => {
      for (const file of waiting) {
        if (stopped) return;
        await this._one(file);
        told((dealt += 1));
      }
    };
    const working = Array.from({ length: AT_ONCE }, work);
    await Promise.all(working).finally(() => (stopped = true));
  }

  /**
   * @param {File} file
   * @returns {any} its artifact, once it has been sent
   */
  artifact(file) {
    return this._sent.get(file);
  }

  /**
   * @param {File} file
   * @returns {import("./api.js").Problem | undefined} why it was refused, if it was
   */
  problem(file) {
    return this._refused.get(file);
  }

  async _one(file) {
    if (this._sent.has(file) || this._refused.has(file)) return;
    try {
      this._sent.set(file, await this._patiently(() => this._post(file)));
    } catch (problem) {
      if (!ITS_FAULT.has(problem.status)) throw problem;
      this._refused.set(file, problem);
    }
  }

  /** Its artifact. */
  async _post(file) {
    const body = new FormData();
    body.append("expires_after[anchor]", "created_at");
    body.append("expires_after[seconds]", String(KEPT));
    body.append("file", file, file.name);
    const { artifact } = await this._api.json("/v1/files", { method: "POST", body, signal: this._signal });
    return artifact;
  }

  /** Tries again where the house has too much to do. */
  async _patiently(attempt) {
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
