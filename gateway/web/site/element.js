/** Creates elements. Strings are only inserted as text; nothing parses markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | boolean} Child false, true, null and undefined are left out
 * @typedef {string | number | boolean | null | undefined | ((event: any) => unknown)} Trait
 */

/**
 * Name of a tag without its classes.
 * @template {string} T
 * @typedef {T extends `${infer Name}.${string}` ? Name : T} TagName
 */

/**
 * @template {string} T
 * @typedef {TagName<T> extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[TagName<T>] : HTMLElement} ElementOf
 */

/**
 * @template {string} T
 * @param {T} tag with classes behind dots, such as "p.quiet"
 * @param {Record<string, Trait>} [traits] attributes; functions become event listeners
 * @param {...(Child | Child[])} children
 * @returns {ElementOf<T>}
 */
export function h(tag, traits = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return /** @type {ElementOf<T>} */ (fill(document.createElement(name), classes, traits, children));
}

/**
 * @param {string} tag
 * @param {Record<string, Trait>} [traits]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function svg(tag, traits = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElementNS(SVG, name), classes, traits, children);
}

/**
 * An icon of 20 by 20 units.
 * @param {string} path
 */
export function glyph(path) {
  return svg("svg.glyph", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("path", { d: path }));
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {string[]} classes
 * @param {Record<string, Trait>} traits
 * @param {(Child | Child[])[]} children
 * @returns {E}
 */
function fill(element, classes, traits, children) {
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(traits)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(
    ...children
      .flat()
      .filter((child) => (child && child !== true) || child === 0)
      .map((child) => (child instanceof Node ? child : String(child))),
  );
  return element;
}
