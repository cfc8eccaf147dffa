/**
 * Renders a subset of Markdown as elements, never as markup: headings, emphasis, code, lists, quotes, tables, rules.
 * Links and images are created only for targets that the caller knows; others are text.
 */

import { h } from "./element.js";

const MAX_DEPTH = 6;
const MAX_DISTANCE = 2000;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)\s*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^( {0,8})(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DIVIDER = /^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/**
 * @typedef {{link: (target: string, label: (Node | string)[]) => Node | null,
 *   picture: (target: string, label: string) => Node | null, words: (text: string) => Node[]}} Known
 * @typedef {{source: string, make: (known: Known) => HTMLElement}} Block
 * @typedef {{begins: (lines: string[], at: number, depth: number) => boolean,
 *   ends: (lines: string[], at: number) => number,
 *   make: (lines: string[], known: Known, depth: number) => HTMLElement}} Syntax
 * @typedef {{node: string | Node | Node[], end: number} | null} Inline what a mark becomes, and where the text goes on
 */

/**
 * Parses the blocks of a text; `source` identifies an unchanged block, `make` renders it.
 * @param {string} text
 * @returns {Block[]}
 */
export function blocks(text) {
  return parted(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

/**
 * @param {string[]} lines
 * @param {number} depth
 * @returns {Block[]}
 */
function parted(lines, depth) {
  /** @type {Block[]} */
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const take = TAKES.find(({ begins }) => begins(lines, at, depth)) || PARAGRAPH;
    const end = take.ends(lines, at);
    const part = lines.slice(at, end);
    found.push({ source: part.join("\n"), make: (known) => take.make(part, known, depth) });
    at = end;
  }
  return found;
}

/**
 * @param {string[]} lines
 * @param {Known} known
 * @param {number} depth
 */
function inside(lines, known, depth) {
  return parted(lines, depth + 1).map(({ make }) => make(known));
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {(line: string, at: number) => boolean} stops
 */
function until(lines, at, stops) {
  let end = at + 1;
  while (end < lines.length && !stops(lines[end], end)) end += 1;
  return end;
}

/** @type {Syntax} */
const CODE = {
  begins: (lines, at) => FENCE.test(lines[at]),
  ends(lines, at) {
    const fence = FENCE.exec(lines[at])?.[1] || "";
    const end = until(lines, at, (line) => line.trim().startsWith(fence) && !line.trim().slice(fence.length).trim());
    return Math.min(end + 1, lines.length);
  },
  make(lines) {
    const closed = lines.length > 1 && FENCE.test(lines.at(-1) || "");
    return h("pre", { tabindex: "0" }, h("code", {}, lines.slice(1, closed ? -1 : undefined).join("\n")));
  },
};

/** @type {Syntax} */
const TITLE = {
  begins: (lines, at) => HEADING.test(lines[at]),
  ends: (lines, at) => at + 1,
  make([line], known) {
    const [, marks, words] = HEADING.exec(line) || ["", "", ""];
    return h(`h${Math.min(marks.length + 2, 6)}`, {}, inline(words, known));
  },
};

/** @type {Syntax} */
const LINE = { begins: (lines, at) => RULE.test(lines[at]), ends: (lines, at) => at + 1, make: () => h("hr") };

/** @type {Syntax} */
const QUOTATION = {
  begins: (lines, at, depth) => QUOTE.test(lines[at]) && depth < MAX_DEPTH,
  ends: (lines, at) => until(lines, at, (line) => !QUOTE.test(line)),
  make: (lines, known, depth) =>
    h(
      "blockquote",
      {},
      inside(
        lines.map((line) => QUOTE.exec(line)?.[1] || ""),
        known,
        depth,
      ),
    ),
};

/** @type {Syntax} */
const LIST = {
  begins: (lines, at, depth) => ITEM.test(lines[at]) && depth < MAX_DEPTH,
  ends(lines, at) {
    const ordered = Boolean(ITEM.exec(lines[at])?.[2]);
    return until(lines, at, (line, end) => {
      if (/^\s/.test(line)) return false;
      const next = line.trim() ? line : lines[end + 1] || "";
      const item = ITEM.exec(next);
      return !(item && Boolean(item[2]) === ordered) && !/^\s+\S/.test(next);
    });
  },
  make(lines, known, depth) {
    const [, indent, number] = ITEM.exec(lines[0]) || ["", "", ""];
    /** @type {string[][]} */
    const items = [];
    for (const line of lines) {
      const item = ITEM.exec(line);
      if (item && item[1].length <= indent.length) items.push([item[3]]);
      else items.at(-1)?.push(line.replace(/^ {1,4}/, ""));
    }
    const list = number ? h("ol", { start: number === "1" ? null : number }) : h("ul");
    list.append(...items.map((item) => h("li", {}, itemContent(item, known, depth))));
    return list;
  },
};

/**
 * Content of a list item: its first line inline, followed by blocks.
 * @param {string[]} lines
 * @param {Known} known
 * @param {number} depth
 */
function itemContent([first, ...rest], known, depth) {
  return [...inline(first, known), ...inside(rest, known, depth)];
}

/** @type {Syntax} */
const TABLE = {
  begins: (lines, at) => lines[at].includes("|") && DIVIDER.test(lines[at + 1] || "") && lines[at + 1].includes("-"),
  ends: (lines, at) => until(lines, at, (line) => !line.includes("|")),
  make([head, , ...rows], known) {
    const row = (/** @type {string} */ line, /** @type {"th" | "td"} */ tag) =>
      h(
        "tr",
        {},
        cells(line).map((cell) => h(tag, {}, inline(cell, known))),
      );
    const table = h(
      "table",
      {},
      h("thead", {}, row(head, "th")),
      h(
        "tbody",
        {},
        rows.map((line) => row(line, "td")),
      ),
    );
    return h("section.scroll", { tabindex: "0" }, table);
  },
};

/** @param {string} line */
function cells(line) {
  return line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((cell) => cell.trim());
}

const TAKES = [CODE, TITLE, LINE, QUOTATION, LIST, TABLE];

/** @type {Syntax} */
const PARAGRAPH = {
  begins: () => true,
  ends: (lines, at) =>
    until(lines, at, (line, end) => !line.trim() || TAKES.some(({ begins }) => begins(lines, end, 0))),
  make: (lines, known) => h("p", {}, inline(lines.map((line) => line.trim()).join("\n"), known)),
};

/**
 * @param {string} text of one block
 * @param {Known} known
 * @param {number} [depth]
 * @returns {Node[]}
 */
function inline(text, known, depth = 0) {
  /** @type {Node[]} */
  const found = [];
  let plain = "";
  const flush = () => {
    if (plain) found.push(...known.words(plain));
    plain = "";
  };
  let at = 0;
  while (at < text.length) {
    const mark = MARKS.get(text[at]);
    const taken = mark && depth < MAX_DEPTH ? mark(text, at, known, depth) : null;
    if (taken && typeof taken.node === "string") {
      plain += taken.node;
    } else if (taken) {
      flush();
      found.push(.../** @type {Node[]} */ ([taken.node].flat()));
    } else {
      plain += text[at];
    }
    at = taken ? taken.end : at + 1;
  }
  flush();
  return found;
}

/** @type {Map<string, (text: string, at: number, known: Known, depth: number) => Inline>} */
const MARKS = new Map([
  ["\\", (text, at) => (/[^\w\s]/.test(text[at + 1] || "") ? { node: text[at + 1], end: at + 2 } : null)],
  ["\n", (text, at) => ({ node: h("br"), end: at + 1 })],
  ["`", code],
  ["*", emphasis],
  ["_", emphasis],
  ["~", (text, at, known, depth) => (text[at + 1] === "~" ? around(text, at, "~~", "del", known, depth) : null)],
  ["[", link],
  ["!", picture],
]);

/**
 * @param {string} text
 * @param {number} at
 * @returns {Inline}
 */
function code(text, at) {
  const [ticks] = /^`+/.exec(text.slice(at, at + 10)) || ["`"];
  const end = near(text, ticks, at + ticks.length);
  return end < 0 ? null : { node: h("code", {}, text.slice(at + ticks.length, end).trim()), end: end + ticks.length };
}

/**
 * @param {string} text
 * @param {number} at
 * @param {Known} known
 * @param {number} depth
 * @returns {Inline}
 */
function emphasis(text, at, known, depth) {
  const mark = text[at];
  if (mark === "_" && /\w/.test(text[at - 1] || "")) return null;
  const strong = text[at + 1] === mark ? around(text, at, mark + mark, "strong", known, depth) : null;
  return strong || around(text, at, mark, "em", known, depth);
}

/**
 * @param {string} text
 * @param {number} at
 * @param {string} mark
 * @param {"strong" | "em" | "del"} tag
 * @param {Known} known
 * @param {number} depth
 * @returns {Inline}
 */
function around(text, at, mark, tag, known, depth) {
  const from = at + mark.length;
  const end = near(text, mark, from);
  if (end <= from || /\s/.test(text[from]) || /\s/.test(text[end - 1])) return null;
  if (mark[0] === "_" && /\w/.test(text[end + mark.length] || "")) return null;
  return { node: h(tag, {}, inline(text.slice(from, end), known, depth + 1)), end: end + mark.length };
}

/**
 * @param {string} text
 * @param {number} at
 * @param {Known} known
 * @param {number} depth
 * @returns {Inline}
 */
function link(text, at, known, depth) {
  const parts = target(text, at);
  if (!parts) return null;
  const label = inline(parts.label, known, depth + 1);
  return { node: known.link(parts.target, label) || [...label, ` (${parts.target})`].map(node), end: parts.end };
}

/**
 * @param {string} text
 * @param {number} at
 * @param {Known} known
 * @returns {Inline}
 */
function picture(text, at, known) {
  const parts = text[at + 1] === "[" ? target(text, at + 1) : null;
  return (
    parts && {
      node: known.picture(parts.target, parts.label) || node(`${parts.label} (${parts.target})`),
      end: parts.end,
    }
  );
}

/**
 * @param {string} text
 * @param {number} at
 */
function target(text, at) {
  const closed = near(text, "](", at + 1);
  const end = closed < 0 ? -1 : near(text, ")", closed + 2);
  return end < 0
    ? null
    : { label: text.slice(at + 1, closed), target: text.slice(closed + 2, end).trim(), end: end + 1 };
}

/**
 * Index of the next unescaped mark within MAX_DISTANCE; -1 if there is none.
 * @param {string} text
 * @param {string} mark
 * @param {number} from
 */
function near(text, mark, from) {
  let at = text.indexOf(mark, from);
  while (at > 0 && text[at - 1] === "\\") at = text.indexOf(mark, at + 1);
  return at - from > MAX_DISTANCE ? -1 : at;
}

/** @param {Node | string} child */
function node(child) {
  return child instanceof Node ? child : document.createTextNode(child);
}
