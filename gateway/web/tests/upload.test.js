import assert from "node:assert/strict";
import { File } from "node:buffer";
import { test } from "node:test";

import { Problem } from "../site/api.js";
import { Uploads } from "../site/upload.js";

const FILE = new File(["x"], "x.txt");

function uploads(...replies) {
  const api = {
    calls: 0,
    async json() {
      api.calls += 1;
      const reply = replies.shift();
      if (reply instanceof Error) throw reply;
      return { artifact: reply };
    },
  };
  return { api, sending: new Uploads(api) };
}

test("uploaded file is not sent again", async () => {
  const { api, sending } = uploads({ sha256: "a" });
  await sending.send([FILE], () => {});
  await sending.send([FILE], () => {});
  assert.equal(api.calls, 1);
  assert.deepEqual(sending.item(FILE), { inputs: [{ name: "file1", artifact: { sha256: "a" } }] });
});

test("rejected file becomes the failure of its item", async () => {
  const { sending } = uploads(
    new Problem({ status: 415, detail: "not an image", code: "CONTENT", remedy: "send one" }),
  );
  await sending.send([FILE], () => {});
  assert.deepEqual(sending.item(FILE), {
    failure: { reason: "CONTENT", message: "not an image", remedy: "send one" },
  });
});

test("overloaded gateway is called again", async () => {
  const { api, sending } = uploads(new Problem({ status: 429, pause: 0.01 }), { sha256: "a" });
  await sending.send([FILE], () => {});
  assert.equal(api.calls, 2);
});

test("other errors end the upload", async () => {
  const { sending } = uploads(new Problem({ status: 403, detail: "no" }));
  await assert.rejects(
    sending.send([FILE], () => {}),
    Problem,
  );
});
