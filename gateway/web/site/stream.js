/** Reads a server-sent event stream with reconnects: each event once and in order. */

import { Problem } from "./api.js";

const MIN_PAUSE = 500;
const MAX_PAUSE = 8000;
const SILENCE_TIMEOUT = 45_000;
const CLOCK_TOLERANCE = 2000;

export class EventStream {
  /**
   * @param {import("./api.js").Api} api
   * @param {string} path of the events
   * @param {(event: any) => boolean} last whether an event is the last one
   * @param {{event: (event: any) => void, connection: (there: boolean) => void, problem: (problem: Problem) => void}} listener
   */
  constructor(api, path, last, listener) {
    this._api = api;
    this._path = path;
    this._isLast = last;
    this._listener = listener;
    this._last = 0;
    this._heard = 0;
    this._ended = false;
    /** Offset of the local clock from the server's, in milliseconds; 0 if below CLOCK_TOLERANCE. */
    this.ahead = 0;
    this._abort = new AbortController();
  }

  /** Reads to the last event; stops early only on permanent errors. */
  async read() {
    let pause = MIN_PAUSE;
    while (!this._ended && !this._abort.signal.aborted) {
      const before = this._heard;
      try {
        await this._once();
      } catch (error) {
        if (this._abort.signal.aborted) return;
        if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) {
          this._listener.problem(error);
          return;
        }
      }
      if (this._ended || this._abort.signal.aborted) return;
      this._listener.connection(false);
      pause = this._heard > before ? MIN_PAUSE : Math.min(2 * pause, MAX_PAUSE);
      await this._paused(pause);
    }
  }

  stop() {
    this._abort.abort();
  }

  async _once() {
    const headers = { accept: "text/event-stream", ...(this._last ? { "last-event-id": String(this._last) } : {}) };
    const response = await this._api.fetch(this._path, { headers, signal: this._abort.signal });
    this._listener.connection(true);
    this._compare(response.headers.get("date"));
    if (response.status === 204) {
      this._ended = true;
      return;
    }
    const reader = /** @type {ReadableStream<any>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await this._soon(reader);
      if (done) return;
      const frames = (rest + (value || "")).split("\n\n");
      rest = frames.pop() || "";
      frames.forEach((frame) => this._frame(frame));
    }
  }

  /** @param {string | null} date */
  _compare(date) {
    const ahead = date ? Date.now() - Date.parse(date) : 0;
    this.ahead = Math.abs(ahead) < CLOCK_TOLERANCE ? 0 : ahead;
  }

  /**
   * Reads the next chunk; a connection that is silent longer than the heartbeat interval counts as lost.
   * @param {ReadableStreamDefaultReader<string>} reader
   * @returns {Promise<{done: boolean, value?: string}>}
   */
  async _soon(reader) {
    let timer = 0;
    const silence = new Promise((resolve) => (timer = setTimeout(resolve, SILENCE_TIMEOUT, { done: true })));
    try {
      return await Promise.race([reader.read(), silence]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** @param {string} frame */
  _frame(frame) {
    const fields = Object.fromEntries(frame.split("\n").map(field));
    if (fields.event === "problem") throw new Problem({ status: 400, ...JSON.parse(fields.data) });
    if (!fields.data) return;
    const event = JSON.parse(fields.data);
    if (event.sequence <= this._last) return;
    this._last = event.sequence || 0;
    this._heard += 1;
    this._ended = this._isLast(event);
    this._listener.event(event);
  }

  /**
   * @param {number} milliseconds
   * @returns {Promise<void>}
   */
  _paused(milliseconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      const soon = () => (clearTimeout(timer), resolve());
      this._abort.signal.addEventListener("abort", soon, { once: true });
      addEventListener("online", soon, { once: true });
    });
  }
}

/** @param {string} line */
function field(line) {
  const at = line.indexOf(":");
  return [line.slice(0, at), line.slice(at + 1).trimStart()];
}
