/** Renders values: text, tables, JSON and files. */

import { h } from "./element.js";

/** @typedef {Record<string, import("../types.js").Json>} Row */

const MOST_ROWS = 200;
const MOST_TEXT = 20_000;

/**
 * @param {import("../types.js").Value} value
 * @param {import("./files.js").Files} files
 * @returns {HTMLElement}
 */
export function shown(value, files) {
  if (typeof value === "string") return text(value);
  if (value && typeof value === "object" && "artifact" in value)
    return files.figure(/** @type {import("../types.js").Artifact} */ (value.artifact));
  return structured(jsonOf(value));
}

/**
 * @param {import("../types.js").Value} value
 * @returns {import("../types.js").Json}
 */
function jsonOf(value) {
  const json = value && typeof value === "object" && "json" in value ? value.json : value;
  return /** @type {import("../types.js").Json} */ (json);
}

/** @param {string} content */
function text(content) {
  const cut = content.length > MOST_TEXT ? `${content.slice(0, MOST_TEXT)}…` : content;
  return h("p.text", {}, cut);
}

/** @param {import("../types.js").Json} content */
function structured(content) {
  const rows = flat(content);
  if (rows) return table(rows);
  const small = JSON.stringify(content);
  if (content === null || typeof content !== "object" || small.length < 80)
    return h("p.text", {}, h("code", {}, small));
  return h(
    "details.json",
    {},
    h("summary", {}, "JSON"),
    h("pre.text", { tabindex: "0" }, JSON.stringify(content, null, 2).slice(0, MOST_TEXT)),
  );
}

/**
 * The value as a list of flat records, if it is one record or a list of records.
 * @param {import("../types.js").Json} content
 * @returns {Row[] | null}
 */
function flat(content) {
  const rows = Array.isArray(content) ? content : [content];
  /** @type {(row: import("../types.js").Json) => boolean} */
  const record = (row) => row !== null && typeof row === "object" && !Array.isArray(row);
  if (!rows.length || !rows.every(record)) return null;
  const records = /** @type {Row[]} */ (rows);
  const simple = (/** @type {import("../types.js").Json} */ value) =>
    value === null || typeof value !== "object" || JSON.stringify(value).length < 80;
  return records.every((row) => Object.keys(row).length < 10 && Object.values(row).every(simple)) ? records : null;
}

/** @param {Row[]} rows */
function table(rows) {
  const columns = [...new Set(rows.flatMap(Object.keys))].sort((one, other) => rank(one) - rank(other));
  const body = rows.slice(0, MOST_ROWS).map((row) =>
    h(
      "tr",
      {},
      columns.map((column) => cell(row[column])),
    ),
  );
  const caption = rows.length > MOST_ROWS ? h("caption", {}, `The first ${MOST_ROWS} of ${rows.length}.`) : null;
  const head = h(
    "thead",
    {},
    h(
      "tr",
      {},
      columns.map((column) => h("th", { scope: "col" }, column)),
    ),
  );
  return h("section.scroll", { tabindex: "0" }, h("table", {}, caption, head, h("tbody", {}, body)));
}

/**
 * Order of columns: labels before scores.
 * @param {string} column
 */
function rank(column) {
  const at = ["label", "entity", "text", "answer", "token", "score"].indexOf(column);
  return at < 0 ? 10 : at;
}

/** @param {import("../types.js").Json | undefined} value */
function cell(value) {
  if (typeof value === "number" && value >= 0 && value <= 1 && !Number.isInteger(value)) {
    return h("td.number", {}, h("meter", { min: 0, max: 1, value, "aria-hidden": "true" }), ` ${value.toFixed(3)}`);
  }
  if (value && typeof value === "object")
    return h(
      "td",
      {},
      Object.entries(value)
        .map(([key, part]) => `${key} ${typeof part === "object" ? JSON.stringify(part) : part}`)
        .join(", "),
    );
  return h(
    typeof value === "number" ? "td.number" : "td",
    {},
    value === null || value === undefined ? "" : String(value),
  );
}
