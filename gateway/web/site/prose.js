/** Renders a streaming answer incrementally: unchanged blocks are unchanged, which avoids flicker. */

import { h } from "./element.js";
import { blocks } from "./markdown.js";

const OURS = /^(?:\/v1\/artifacts\/|artifact:)([0-9a-f]{64})$/;

export class Prose {
  /** @param {import("./files.js").Files} files */
  constructor(files) {
    this._files = files;
    /** @type {{source: string, artifacts: number, element: HTMLElement}[]} */
    this._made = [];
    this.element = h("div.prose");
  }

  /**
   * @param {string} text
   * @param {Map<string, import("../types.js").Artifact>} artifacts artifacts of the run by digest: the only allowed link targets
   */
  show(text, artifacts) {
    const known = knowing(this._files, artifacts);
    const parts = blocks(text);
    const same = parts.findIndex(
      ({ source }, at) => this._made[at]?.source !== source || this._made[at].artifacts !== artifacts.size,
    );
    const unchanged = same < 0 ? parts.length : same;
    this._made.splice(unchanged).forEach(({ element }) => element.remove());
    for (const part of parts.slice(unchanged)) {
      const element = part.make(known);
      this._made.push({ source: part.source, artifacts: artifacts.size, element });
      this.element.append(element);
    }
  }
}

/**
 * Link targets of an answer: files of the run, by digest or name.
 * @param {import("./files.js").Files} files
 * @param {Map<string, import("../types.js").Artifact>} artifacts
 * @returns {import("./markdown.js").Known}
 */
function knowing(files, artifacts) {
  const named = new Map([...artifacts.values()].map((artifact) => [artifact.name || "", artifact]));
  for (const name of [...named.keys()]) if (!name.includes(".")) named.delete(name);
  const pattern = named.size
    ? new RegExp(
        `(${[...named.keys()]
          .sort((one, other) => other.length - one.length)
          .map(literal)
          .join("|")})`,
        "u",
      )
    : null;
  const find = (/** @type {string} */ target) => artifacts.get(OURS.exec(target)?.[1] || "");
  return {
    link: (target, label) => {
      const artifact = find(target);
      return artifact ? files.link(artifact, label) : null;
    },
    picture: (target, label) => {
      const artifact = find(target);
      return artifact?.media_type?.startsWith("image/") ? files.picture(artifact, label) : null;
    },
    words: (text) =>
      (pattern ? text.split(pattern) : [text]).filter(Boolean).map((part) => {
        const artifact = named.get(part);
        return artifact ? files.link(artifact, [part]) : document.createTextNode(part);
      }),
  };
}

/** @param {string} text */
function literal(text) {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
}
