/** Writes a ZIP archive without compression: most files of runs are compressed already. */

const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
const VERSION = 20;
const UTF8_NAMES = 0x0800;
const LOCAL_BYTES = 30;
const CENTRAL_BYTES = 46;
const END_BYTES = 22;

/** Limits of the format without its 64-bit extension. */
const MAX_BYTES = 0xffffffff;
const MAX_FILES = 0xffff;

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/**
 * CRC-32 checksum (ISO 3309).
 * @param {Uint8Array} bytes
 */
export function crc32(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = CRC_TABLE[(value ^ byte) & 0xff] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

/**
 * @param {AsyncIterable<{name: string, content: Blob}> | Iterable<{name: string, content: Blob}>} files
 * @param {Date} [time] modification time of the files
 * @returns {Promise<Blob>}
 * @throws {RangeError} the archive would exceed 4 GiB or 65,535 files
 */
export async function zip(files, time = new Date()) {
  /** @type {(Uint8Array | Blob)[]} */
  const parts = [];
  /** @type {Uint8Array[]} */
  const directory = [];
  let offset = 0;
  for await (const { name, content } of files) {
    const encoded = new TextEncoder().encode(name);
    const crc = crc32(new Uint8Array(await content.arrayBuffer()));
    const common = [VERSION, UTF8_NAMES, 0, ...dosTime(time)];
    const local = record(LOCAL_BYTES, [[LOCAL], common, [crc, content.size, content.size], [encoded.length, 0]]);
    directory.push(
      record(CENTRAL_BYTES, [
        [CENTRAL],
        [VERSION, ...common],
        [crc, content.size, content.size],
        [encoded.length, 0, 0, 0, 0],
        [0, offset],
      ]),
      encoded,
    );
    parts.push(local, encoded, content);
    offset += local.length + encoded.length + content.size;
    if (offset > MAX_BYTES || directory.length / 2 > MAX_FILES) throw new RangeError("the files exceed a ZIP archive");
  }
  const size = directory.reduce((sum, { length }) => sum + length, 0);
  const count = directory.length / 2;
  const end = record(END_BYTES, [[END], [0, 0, count, count], [size, offset], [0]]);
  return new Blob(/** @type {BlobPart[]} */ ([...parts, ...directory, end]), { type: "application/zip" });
}

/**
 * Makes names unique: "a.wav" and "a.wav" become "a.wav" and "a (2).wav".
 * @param {string[]} names
 */
export function uniqueNames(names) {
  /** @type {Set<string>} */
  const used = new Set();
  return names.map((name) => {
    const dot = name.lastIndexOf(".") > 0 ? name.lastIndexOf(".") : name.length;
    let unique = name;
    for (let number = 2; used.has(unique.toLowerCase()); number += 1)
      unique = `${name.slice(0, dot)} (${number})${name.slice(dot)}`;
    used.add(unique.toLowerCase());
    return unique;
  });
}

/**
 * A little-endian record of groups, which alternate between 32 and 16 bits, 32 first.
 * @param {number} bytes
 * @param {number[][]} groups
 */
function record(bytes, groups) {
  const view = new DataView(new ArrayBuffer(bytes));
  let at = 0;
  groups.forEach((group, index) => {
    for (const value of group) {
      if (index % 2) view.setUint16(at, value, true);
      else view.setUint32(at, value, true);
      at += index % 2 ? 2 : 4;
    }
  });
  return new Uint8Array(view.buffer);
}

/**
 * Time and date of MS-DOS, in local time and steps of two seconds.
 * @param {Date} time
 */
function dosTime(time) {
  const clock = (time.getHours() << 11) | (time.getMinutes() << 5) | (time.getSeconds() >> 1);
  const date = (Math.max(0, time.getFullYear() - 1980) << 9) | ((time.getMonth() + 1) << 5) | time.getDate();
  return [clock, date];
}
