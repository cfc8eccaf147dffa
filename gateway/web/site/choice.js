/** A checkbox with title and explanation. */

import { h } from "./element.js";

/**
 * @param {HTMLInputElement} box
 * @param {string} title
 * @param {string} about
 */
export function choice(box, title, about) {
  return h("label.choice", {}, box, h("span", {}, title, h("small", {}, about)));
}
