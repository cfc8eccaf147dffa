/** Displays, plays and saves the files of a run. */

import { artifactPath } from "./api.js";
import { glyph, h } from "./element.js";
import { PAPER } from "./glyphs.js";
import { size } from "./format.js";

const SHOWN = /^(image\/(png|jpeg|gif|webp|bmp|avif)|(audio|video)\/.+)$/;
const READ = /^(text\/(plain|csv|markdown)|application\/json)$/;
const MOST_READ = 20_000;

export class Files {
  /** @param {import("./api.js").Api} api */
  constructor(api) {
    this._api = api;
  }

  /**
   * Whether a browser can display the file.
   * @param {import("../types.js").Artifact} artifact
   */
  shows(artifact) {
    return SHOWN.test(artifact.media_type || "");
  }

  /**
   * A link that opens a file, or downloads it if it cannot be displayed.
   * @param {import("../types.js").Artifact} artifact
   * @param {(Node | string)[]} [label]
   */
  link(artifact, label) {
    const link = h("a", { href: artifactPath(artifact), target: "_blank", rel: "noopener" }, label || name(artifact));
    if (this._api.hasKey) link.addEventListener("click", (event) => this._open(event, artifact), { once: true });
    return link;
  }

  /**
   * A line with name, type and size.
   * @param {import("../types.js").Artifact} artifact
   */
  chip(artifact) {
    const about = [artifact.media_type, size(artifact.size_bytes || 0)].filter(Boolean).join(", ");
    const icon = /^image\/(png|jpeg|gif|webp)$/.test(artifact.media_type || "")
      ? this.picture(artifact, "")
      : glyph(PAPER);
    return h("span.chip", {}, icon, h("span.chip-words", {}, this.link(artifact), h("small", {}, about)));
  }

  /**
   * @param {import("../types.js").Artifact} artifact
   * @param {string} [label]
   */
  picture(artifact, label = name(artifact)) {
    return this._loaded(h("img", { alt: label, loading: "lazy", decoding: "async" }), artifact);
  }

  /**
   * The file if a browser can display it, with name, size and download link.
   * @param {import("../types.js").Artifact} artifact
   */
  figure(artifact) {
    return h(
      "figure.file",
      {},
      this._body(artifact),
      h("figcaption", {}, this.link(artifact), h("small", {}, size(artifact.size_bytes || 0)), this._saving(artifact)),
    );
  }

  /** @param {import("../types.js").Artifact} artifact */
  _body(artifact) {
    const kind = artifact.media_type || "";
    if (kind.startsWith("image/") && this.shows(artifact)) return this.picture(artifact);
    if (kind.startsWith("audio/"))
      return this._loaded(h("audio", { controls: true, preload: "metadata", "aria-label": name(artifact) }), artifact);
    if (kind.startsWith("video/"))
      return this._loaded(h("video", { controls: true, preload: "metadata", "aria-label": name(artifact) }), artifact);
    return READ.test(kind) ? this._text(artifact) : null;
  }

  /** @param {import("../types.js").Artifact} artifact */
  _text(artifact) {
    const shown = h("pre.text", { tabindex: "0" }, "…");
    const read = async () => {
      const response = await this._api.fetch(artifactPath(artifact), {
        headers: { range: `bytes=0-${MOST_READ - 1}` },
      });
      const text = await response.text();
      shown.textContent = (artifact.size_bytes || 0) > MOST_READ ? `${text}\n…` : text;
    };
    read().catch((problem) => (shown.textContent = problem.message));
    return shown;
  }

  /** @param {import("../types.js").Artifact} artifact */
  _saving(artifact) {
    const link = h("a.save", { href: artifactPath(artifact), download: name(artifact) }, "Save");
    link.setAttribute("aria-label", `Save ${name(artifact)}`);
    if (this._api.hasKey)
      this._api.address(artifact).then(
        (address) => link.setAttribute("href", address),
        () => link.remove(),
      );
    return link;
  }

  /**
   * @template {HTMLElement} E
   * @param {E} element
   * @param {import("../types.js").Artifact} artifact
   */
  _loaded(element, artifact) {
    this._api.address(artifact).then(
      (address) => element.setAttribute("src", address),
      () => element.remove(),
    );
    element.addEventListener(
      "error",
      () => element.replaceWith(h("span.broken", {}, "This browser cannot display the file.")),
      {
        once: true,
      },
    );
    return element;
  }

  /**
   * @param {Event} event
   * @param {import("../types.js").Artifact} artifact
   */
  async _open(event, artifact) {
    event.preventDefault();
    const link = /** @type {HTMLAnchorElement} */ (event.currentTarget);
    link.setAttribute("href", await this._api.address(artifact));
    link.click();
  }
}

/** @param {import("../types.js").Artifact} artifact */
function name(artifact) {
  return artifact.name || "a file";
}

/**
 * Thumbnail or icon of a file that has not been uploaded yet.
 * @param {File} file
 */
export function face(file) {
  if (!/^image\/(png|jpeg|gif|webp)$/.test(file.type)) return glyph(PAPER);
  const address = URL.createObjectURL(file);
  const forget = () => URL.revokeObjectURL(address);
  const broken = (/** @type {{target: HTMLElement}} */ { target }) => (forget(), target.replaceWith(glyph(PAPER)));
  return h("img", { src: address, alt: "", load: forget, error: broken });
}
