// Formats, messages, titles and file names.
import assert from "node:assert/strict";
import { test } from "node:test";

import { amount, cut, duration, plural, shortened, size } from "../site/format.js";
import { wrapped } from "../site/graph.js";
import { titleOf, batchAddress, pipelineAddress, runAddress } from "../site/links.js";
import { sentence, withoutCommands } from "../site/notice.js";
import { itemFileName, safeName } from "../site/save_files.js";

/** [function, arguments, result] */
const CASES = [
  [duration, [0.123], "0.12 s"],
  [duration, [59.94], "59.9 s"],
  [duration, [75.2], "1 min 15 s"],
  [duration, [3725], "1 h 2 min"],
  [size, [999], "999 bytes"],
  [size, [1500], "1.5 KB"],
  [size, [120_268], "120 KB"],
  [amount, [10_000], "10,000"],
  [plural, [1, "task"], "1 task"],
  [plural, [1200, "task"], "1,200 tasks"],
  [cut, ["abcdef", 4], "abc…"],
  [cut, ["abcd", 4], "abcd"],
  [shortened, ["short.png", 22], "short.png"],
  [shortened, ["a-rather-long-file-name.png", 16], "a-rather-l…e.png"],
  [wrapped, ["image-to-text", 208], ["image-to-text"]],
  [wrapped, ["automatic-speech-recognition", 208], ["automatic-speech-", "recognition"]],
  [wrapped, ["zero-shot-image-classification", 158], ["zero-shot-", "image-", "classification"]],
  [sentence, ["send it again"], "Send it again"],
  [sentence, [""], ""],
  [withoutCommands, ["cannot decode a.png: the data is truncated."], "cannot decode a.png: the data is truncated."],
  [withoutCommands, ["No expert offers it: add one with `hugginggpt experts add ADDRESS`."], "No expert offers it."],
  [withoutCommands, ["send it again, or see `hugginggpt tasks` for the tasks"], "send it again"],
  [withoutCommands, ["No chat. `hugginggpt tasks` lists all. Send a file."], "No chat. Send a file."],
  [withoutCommands, ["see GET /docs for the routes"], ""],
  [titleOf, [{ batch: { name: "a.png" }, spec: { request: "Read" } }], "a.png"],
  [titleOf, [{ spec: { request: "", pipeline: { name: "reader" } } }], "reader"],
  [titleOf, [{ spec: {} }], "Custom plan"],
  [runAddress, ["run_1"], "/?run=run_1"],
  [batchAddress, ["a&b"], "/?batch=a%26b"],
  [pipelineAddress, [{ name: "reader", version: 2 }], "/?pipeline=reader&version=2"],
  [safeName, ["../a/b:c?.txt"], "b_c_.txt"],
  [safeName, ["..."], "file"],
  [itemFileName, [{ index: 7, name: "shop/sign.png" }, "audio", { name: "speech.wav" }], "0007-sign.audio.wav"],
  [itemFileName, [{ index: 12 }, "read.image", { media_type: "image/png" }], "0012-file.read.image.png"],
];

for (const [call, given, expected] of CASES) {
  test(`${call.name}(${JSON.stringify(given).slice(1, -1)}) is ${JSON.stringify(expected)}`, () => {
    assert.deepEqual(call(...given), expected);
  });
}
