import assert from "node:assert/strict";
import { test } from "node:test";

import { crc32, uniqueNames, zip } from "../site/zip.js";

const TIME = new Date(2030, 1, 3, 4, 5, 6);

async function bytes(files) {
  return Buffer.from(await (await zip(files, TIME)).arrayBuffer());
}

test("checksum has the standard's check value", () => {
  assert.equal(crc32(new TextEncoder().encode("123456789")), 0xcbf43926);
});

test("archive has a directory entry per file at the end", async () => {
  const archive = await bytes([
    { name: "ä.txt", content: new Blob(["one"]) },
    { name: "b.txt", content: new Blob(["three"]) },
  ]);
  assert.equal(archive.readUInt32LE(archive.length - 22), 0x06054b50);
  assert.equal(archive.readUInt16LE(archive.length - 12), 2);
});

test("directory points to the second file", async () => {
  const archive = await bytes([
    { name: "a", content: new Blob(["one"]) },
    { name: "b", content: new Blob(["three"]) },
  ]);
  const start = archive.readUInt32LE(archive.length - 6);
  const offset = archive.readUInt32LE(start + 46 + 1 + 42);
  assert.equal(archive.readUInt32LE(offset), 0x04034b50);
  assert.equal(archive.subarray(offset + 30, offset + 36).toString(), "bthree");
});

test("time is in the format of MS-DOS", async () => {
  const archive = await bytes([{ name: "a", content: new Blob([""]) }]);
  assert.equal(archive.readUInt16LE(10), (4 << 11) | (5 << 5) | 3);
  assert.equal(archive.readUInt16LE(12), (50 << 9) | (2 << 5) | 3);
});

test("more files than the format allows are refused", async () => {
  const empty = new Blob([]);
  const files = Array.from({ length: 65_536 }, (_, at) => ({ name: String(at), content: empty }));
  await assert.rejects(zip(files, TIME), RangeError);
});

test("equal names get a number before the extension", () => {
  assert.deepEqual(uniqueNames(["a.wav", "a.wav", "A.wav", "b", "b"]), [
    "a.wav",
    "a (2).wav",
    "A (3).wav",
    "b",
    "b (2)",
  ]);
});
