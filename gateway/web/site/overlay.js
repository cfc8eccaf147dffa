/** Draws detections on an image: boxes, points and masks. */

import { h, svg } from "./element.js";

const MOST = 300;
const HUES = 6;

let masks = 0;

/**
 * @typedef {{box?: number[], point?: number[], label: string, silent: boolean}} Mark silent: its label only
 * repeats text of the image
 */

/**
 * Finds boxes and points at any depth of a task's JSON.
 * @param {unknown} json
 * @returns {Mark[]}
 */
export function marks(json) {
  /** @type {Mark[]} */
  const found = [];
  const visit = (/** @type {unknown} */ value) => {
    if (!value || typeof value !== "object" || found.length >= MOST) return;
    const mark = Array.isArray(value) ? null : marked(value);
    if (mark) found.push(mark);
    Object.values(value).forEach(visit);
  };
  visit(json);
  return found;
}

/**
 * @param {any} value an object of unknown form
 * @returns {Mark | null}
 */
function marked(value) {
  const { box, x, y } = value;
  const text = String(value.label ?? value.text ?? value.name ?? "");
  const silent = value.label === undefined;
  const score = typeof value.score === "number" ? ` ${Math.round(value.score * 100)} %` : "";
  if (box && ["xmin", "ymin", "xmax", "ymax"].every((side) => Number.isFinite(box[side]))) {
    return { box: [box.xmin, box.ymin, box.xmax, box.ymax], label: text + score, silent };
  }
  return Number.isFinite(x) && Number.isFinite(y) ? { point: [x, y], label: text + score, silent } : null;
}

/**
 * An image with an overlay of marks and mask, which can be switched off.
 * @param {import("./files.js").Files} files
 * @param {import("../types.js").Artifact} picture its artifact
 * @param {Mark[]} found
 * @param {Promise<string> | null} mask address of a mask image, white where something was detected
 */
export function overlay(files, picture, found, mask) {
  const image = files.picture(picture);
  image.loading = "eager";
  const stage = h("div.stage", {}, image);
  const draw = async () => {
    const [wide, high] = [image.naturalWidth, image.naturalHeight];
    if (wide && high) stage.append(drawing(wide, high, found, mask && (await mask)));
  };
  image.addEventListener("load", draw, { once: true });
  const shown = h("input", {
    type: "checkbox",
    checked: true,
    change: (event) => stage.classList.toggle("bare", !event.target.checked),
  });
  const what = found.length ? `${found.length} found` : "the mask";
  return h(
    "figure.file",
    {},
    stage,
    h("figcaption", {}, h("label", {}, shown, ` Show ${what}`), h("small", {}, `on ${picture.name || "the picture"}`)),
  );
}

/**
 * @param {number} wide
 * @param {number} high
 * @param {Mark[]} found
 * @param {string | null} mask
 */
function drawing(wide, high, found, mask) {
  const unit = Math.max(wide, high) / 480;
  const layer = svg("svg", {
    viewBox: `0 0 ${wide} ${high}`,
    role: "img",
    "aria-label": found.map(({ label }) => label).join(", ") || "mask",
  });
  if (mask) layer.append(...masked(wide, high, mask));
  const hues = [...new Set(found.map(hue))];
  layer.append(
    ...found.map((mark) =>
      svg(`g.hue-${hues.indexOf(hue(mark)) % HUES}`, {}, mark.box ? boxed(mark, unit) : dotted(mark, unit)),
    ),
  );
  return layer;
}

/** @param {Mark} mark */
function hue({ label, silent }) {
  return silent ? "" : label.replace(/ \d+ %$/, "").slice(0, 30);
}

/**
 * @param {number} wide
 * @param {number} high
 * @param {string} mask
 */
function masked(wide, high, mask) {
  const id = `mask-${(masks += 1)}`;
  const shape = svg(
    "mask",
    { id },
    svg("image", { href: mask, width: wide, height: high, preserveAspectRatio: "none" }),
  );
  return [shape, svg("rect.veil", { width: wide, height: high, mask: `url(#${id})` })];
}

/**
 * @param {Mark} mark
 * @param {number} unit
 */
function boxed({ box = [], label, silent }, unit) {
  const [left, top, right, bottom] = box;
  const high = 13 * unit;
  const above = top > high * 1.3;
  return svg(
    "g",
    {},
    svg(
      "rect.frame",
      { x: left, y: top, width: right - left, height: bottom - top, rx: 2 * unit, "stroke-width": 2 * unit },
      svg("title", {}, label),
    ),
    !silent &&
      svg(
        "text",
        { x: left + 2 * unit, y: above ? top - 4 * unit : top + high, "font-size": high, "stroke-width": 3 * unit },
        label.slice(0, 60),
      ),
  );
}

/**
 * @param {Mark} mark
 * @param {number} unit
 */
function dotted({ point = [], label }, unit) {
  const [x, y] = point;
  return svg("circle", { cx: x, cy: y, r: 3.5 * unit }, svg("title", {}, label));
}
