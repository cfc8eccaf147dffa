/** Saves several files as one ZIP archive, and names them. */

import { Problem, artifactPath } from "./api.js";
import { uniqueNames, zip } from "./zip.js";

/** @typedef {import("../types.js").Artifact} Artifact */

/** Lifetime of an object URL with an archive, in milliseconds. */
const OBJECT_URL_LIFETIME = 60_000;

const NAMELESS = "file";
/** Characters that a file system may not accept, and control characters. */
const UNSAFE = /[<>:"|?*/\\\p{Cc}\p{Cf}]+/gu;

const EXTENSIONS = new Map([
  ["audio/wav", ".wav"],
  ["audio/mpeg", ".mp3"],
  ["image/png", ".png"],
  ["image/jpeg", ".jpg"],
  ["video/mp4", ".mp4"],
  ["text/plain", ".txt"],
  ["application/json", ".json"],
]);

/**
 * Downloads the files and saves them as an archive.
 * @param {import("./api.js").Api} api
 * @param {string} archive its name
 * @param {{name: string, artifact: Artifact}[]} files
 * @param {AbortSignal} [signal]
 * @throws {Problem} a file cannot be read, or the archive would be too large
 */
export async function saveAll(api, archive, files, signal) {
  const names = uniqueNames(files.map(({ name }) => safeName(name)));
  async function* contents() {
    for (const [at, { artifact }] of files.entries()) {
      const response = await api.fetch(artifactPath(artifact), { signal });
      yield { name: names[at], content: await response.blob() };
    }
  }
  try {
    saveBlob(await zip(contents()), archive);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new Problem({
      detail: "The files are too large for one archive.",
      remedy: "Save them one by one, or with the command line.",
    });
  }
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), OBJECT_URL_LIFETIME);
}

/**
 * Name of an item's output file, from index, item name and output: 0007-sign.audio.wav.
 * @param {{index: number, name?: string}} item
 * @param {string} output
 * @param {Artifact} artifact
 */
export function itemFileName({ index, name = "" }, output, artifact) {
  const item = safeName(name).replace(/\.[^.]*$/, "") || "item";
  return `${String(index).padStart(4, "0")}-${item}.${safeName(output)}${extension(artifact)}`;
}

/** @param {string} name */
export function safeName(name) {
  const last = name.split(/[/\\]/).at(-1) || "";
  return last.replace(UNSAFE, "_").replace(/^[ .]+|[ .]+$/g, "") || NAMELESS;
}

/** @param {Artifact} artifact */
function extension({ name = "", media_type = "" }) {
  return /\.[^.\s/\\]{1,12}$/.exec(name)?.[0] || EXTENSIONS.get(media_type) || "";
}
