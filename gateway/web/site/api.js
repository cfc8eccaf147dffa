/** The gateway's HTTP API, with a key where one is asked for. */

const KEY = "key";

/** An answer that is no success: what is wrong, and what helps. */
export class Problem extends Error {
  /** @param {{detail?: string, remedy?: string, code?: string, status?: number, pause?: number}} body */
  constructor(body) {
    super(body.detail || "The server gave no reason.");
    this.remedy = body.remedy || "";
    this.code = body.code || "";
    this.status = body.status || 0;
    /** Seconds after which it may be tried again; 0: nothing was said of it. */
    this.pause = body.pause || 0;
  }
}

/** @param {{sha256: string}} artifact */
export function artifactPath(artifact) {
  return `/v1/artifacts/${encodeURIComponent(artifact.sha256)}`;
}

export class Api {
  /** @param {(refused: boolean) => Promise<string>} askKey asks the reader for a key; refused: the last one was not taken */
  constructor(askKey) {
    this._askKey = askKey;
    this._asking = null;
    this._blobs = new Map();
  }

  get hasKey() {
    return sessionStorage.getItem(KEY) !== null;
  }

  forgetKey() {
    sessionStorage.removeItem(KEY);
    for (const blob of this._blobs.values()) blob.then(URL.revokeObjectURL, () => {});
    this._blobs.clear();
  }

  /**
   * @param {string} path
   * @param {RequestInit} [options]
   * @returns {Promise<Response>} a success
   * @throws {Problem}
   */
  async fetch(path, options = {}) {
    for (;;) {
      const used = sessionStorage.getItem(KEY);
      const response = await this._sent(path, options, used);
      if (response.ok) return response;
      const problem = await refusal(response);
      if (response.status !== 401) throw problem;
      if (used === sessionStorage.getItem(KEY)) await this._newKey(used !== null);
    }
  }

  /**
   * @param {string} path
   * @param {RequestInit} [options]
   * @returns {Promise<any>}
   */
  async json(path, options) {
    const response = await this.fetch(path, options);
    return response.status === 204 ? null : response.json();
  }

  /**
   * Where a file can be loaded from: its address, or a copy in memory where that needs a key.
   * @param {{sha256: string}} artifact
   * @returns {Promise<string>}
   */
  async address(artifact) {
    const path = artifactPath(artifact);
    if (!this.hasKey) return path;
    if (!this._blobs.has(path)) this._blobs.set(path, this._copied(path));
    return this._blobs.get(path);
  }

  async _copied(path) {
    try {
      const response = await this.fetch(path);
      return URL.createObjectURL(await response.blob());
    } catch (problem) {
      this._blobs.delete(path);
      throw problem;
    }
  }

  async _sent(path, options, key) {
    const headers = new Headers(options.headers);
    if (key) headers.set("authorization", `Bearer ${key}`);
    try {
      return await fetch(path, { ...options, headers, credentials: "same-origin" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem({
        detail: "The house does not answer.",
        remedy: "See whether it runs, then try again.",
        code: "UNREACHABLE",
      });
    }
  }

  async _newKey(refused) {
    this._asking ??= this._askKey(refused);
    try {
      sessionStorage.setItem(KEY, await this._asking);
    } finally {
      this._asking = null;
    }
  }
}

/** A name for what is sent, so that sending it twice does not do it twice; crypto.randomUUID is not on every page. */
export function unguessable() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {Response} response */
async function refusal(response) {
  const pause = Number(response.headers.get("retry-after")) || 0;
  try {
    return new Problem({ status: response.status, pause, ...(await response.json()) });
  } catch {
    return new Problem({
      status: response.status,
      detail: `The server answered ${response.status} and said no more.`,
      pause,
    });
  }
}
