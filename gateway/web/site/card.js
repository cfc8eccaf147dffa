/** A section of a page with a heading. */

import { h } from "./element.js";

/**
 * @param {string} kind CSS classes, separated by dots
 * @param {string} title
 * @param {...(import("./element.js").Child | import("./element.js").Child[])} content
 * @returns {HTMLElement}
 */
export function card(kind, title, ...content) {
  const id = `title-${kind.split(".")[0]}`;
  return h(`section.card.${kind}`, { "aria-labelledby": id }, h("h2", { id }, title), ...content);
}
