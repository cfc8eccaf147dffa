// The event stream, from a fake API that returns prepared bodies.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Problem } from "../site/api.js";
import { EventStream } from "../site/stream.js";

function frame(sequence, rest = {}) {
  return `id: ${sequence}\nevent: e\ndata: ${JSON.stringify({ sequence, ...rest })}\n\n`;
}

/** Reads a stream to its end from responses or errors, one per connection. */
async function read(...replies) {
  const seen = { events: [], last: [], connected: [], problem: null };
  const api = {
    async fetch(_path, { headers }) {
      seen.last.push(headers["last-event-id"]);
      const reply = replies.shift();
      if (reply instanceof Error) throw reply;
      return reply;
    },
  };
  const stream = new EventStream(api, "/events", ({ end }) => Boolean(end), {
    event: ({ sequence }) => seen.events.push(sequence),
    connection: (there) => seen.connected.push(there),
    problem: (problem) => (seen.problem = problem),
  });
  await stream.read();
  return seen;
}

globalThis.addEventListener ??= () => {};

test("events are reported in order until the last one", async () => {
  const { events } = await read(new Response(frame(1) + frame(2, { end: true })));
  assert.deepEqual(events, [1, 2]);
});

test("broken stream continues after the last complete event", async () => {
  const { events, last } = await read(new Response(frame(1) + "id: 2\nda"), new Response(frame(2, { end: true })));
  assert.deepEqual(events, [1, 2]);
  assert.deepEqual(last, [undefined, "1"]);
});

test("repeated event is reported once", async () => {
  const { events } = await read(new Response(frame(1)), new Response(frame(1) + frame(2, { end: true })));
  assert.deepEqual(events, [1, 2]);
});

test("lost connection is reported until the next one", async () => {
  const { connected } = await read(new TypeError("network"), new Response(frame(1, { end: true })));
  assert.deepEqual(connected, [false, true]);
});

test("permanent error ends the stream", async () => {
  const { problem } = await read(new Problem({ status: 404, detail: "no such run" }));
  assert.equal(problem.message, "no such run");
});

test("empty response ends the stream", async () => {
  const { events } = await read(new Response(null, { status: 204 }));
  assert.deepEqual(events, []);
});
