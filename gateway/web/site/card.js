/** A part of a page with its heading. */

import { h } from "./element.js";

/**
 * @param {string} kind with more classes behind dots, if it has any
 * @param {string} title
 * @param {...import("./element.js").Child} content
 * @returns {HTMLElement}
 */
export function card(kind, title, ...content) {
  const id = `title-${kind.split(".")[0]}`;
  return h(`section.card.${kind}`, { "aria-labelledby": id }, h("h2", { id }, title), ...content);
}
