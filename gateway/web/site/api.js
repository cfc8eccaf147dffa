/** Client of the gateway's HTTP API; sends an API key if the gateway requires one. */

const KEY = "key";

/** An error response, with its message and remedy. */
export class Problem extends Error {
  /** @param {{detail?: string, remedy?: string, code?: string, status?: number, pause?: number}} body */
  constructor(body) {
    super(body.detail || "The server returned no error message.");
    this.remedy = body.remedy || "";
    this.code = body.code || "";
    this.status = body.status || 0;
    /** Seconds after which the request may be retried; 0 if unknown. */
    this.pause = body.pause || 0;
  }
}

/** @param {{sha256: string}} artifact */
export function artifactPath(artifact) {
  return `/v1/artifacts/${encodeURIComponent(artifact.sha256)}`;
}

export class Api {
  /** @param {(refused: boolean) => Promise<string>} askKey asks the user for a key; refused: the last one was rejected */
  constructor(askKey) {
    this._askKey = askKey;
    /** @type {Promise<string> | null} */
    this._pendingKey = null;
    /** @type {Map<string, Promise<string>>} */
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
   * @returns {Promise<Response>} a successful response
   * @throws {Problem}
   */
  async fetch(path, options = {}) {
    for (;;) {
      const used = sessionStorage.getItem(KEY);
      const response = await this._request(path, options, used);
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
   * The address of a file: its URL, or an object URL if loading it needs a key.
   * @param {{sha256: string}} artifact
   * @returns {Promise<string>}
   */
  async address(artifact) {
    const path = artifactPath(artifact);
    if (!this.hasKey) return path;
    const known = this._blobs.get(path) || this._objectUrl(path);
    this._blobs.set(path, known);
    return known;
  }

  /** @param {string} path */
  async _objectUrl(path) {
    try {
      const response = await this.fetch(path);
      return URL.createObjectURL(await response.blob());
    } catch (problem) {
      this._blobs.delete(path);
      throw problem;
    }
  }

  /**
   * @param {string} path
   * @param {RequestInit} options
   * @param {string | null} key
   */
  async _request(path, options, key) {
    const headers = new Headers(options.headers);
    if (key) headers.set("authorization", `Bearer ${key}`);
    try {
      return await fetch(path, { ...options, headers, credentials: "same-origin" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem({
        detail: "The gateway is unreachable.",
        remedy: "Check that it is running, then try again.",
      });
    }
  }

  /** @param {boolean} refused */
  async _newKey(refused) {
    this._pendingKey ??= this._askKey(refused);
    try {
      sessionStorage.setItem(KEY, await this._pendingKey);
    } finally {
      this._pendingKey = null;
    }
  }
}

/** A random id, for idempotency keys; crypto.randomUUID is missing on pages without TLS. */
export function randomId() {
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
      detail: "The server sent an error without an explanation.",
      remedy: "Try again. If the error persists, report it to the operator.",
      pause,
    });
  }
}
