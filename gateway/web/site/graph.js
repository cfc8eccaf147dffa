/** Graph of a plan with the state of its tasks: inputs first, then tasks in dependency order, then the answer. */

import { h, svg } from "./element.js";
import { layered } from "./layout.js";
import { GOOD, model, references, seconds } from "./record.js";
import { stateClass, stateLabel, stateIcon } from "./state.js";
import { cut, duration, shortened } from "./format.js";

const NODE = { wide: 208 };
const GAP = { along: 56, across: 18 };
const NARROW = 620;
const MARGIN = 4;

/** Width of the task icon, and of a letter of a name, as an estimate: measuring text is slow. */
const TEXT = 44;
const LETTER = 8.8;
const WIDEST = 8;
const SLIM = { wide: 158 };
const TIGHT = { along: 34, across: 14 };
const END = { wide: 172, high: 34, letters: 22 };

/** Heights of a node's margins and of one line of text. */
const PADDING = 22;
const LINE = 18;

/** Minimum scale of the drawing; below it, the graph scrolls. */
const READABLE = 0.75;

/** Keys that move between tasks. */
const STEPS = new Map([
  ["ArrowRight", 1],
  ["ArrowDown", 1],
  ["ArrowLeft", -1],
  ["ArrowUp", -1],
]);

/** Key of the answer's node, which cannot collide with names of inputs. */
const OUTCOME = Symbol("outcome");

/**
 * @typedef {import("./record.js").RunRecord} RunRecord
 * @typedef {import("./layout.js").NodeId} NodeId
 * @typedef {import("./layout.js").Place} Place
 * @typedef {{x: number, y: number}} Point
 * @typedef {{wide: number, high: number}} Size
 * @typedef {{from: NodeId, to: NodeId, line: SVGElement}} Edge
 * @typedef {[NodeId, NodeId]} Pair
 */

export class Graph {
  /** @param {(task: number) => void} choose called with the id of a selected task */
  constructor(choose) {
    this._choose = choose;
    this._known = "";
    /** @type {RunRecord | null} */
    this._run = null;
    /** @type {Map<NodeId, TaskNode | End>} */
    this._nodes = new Map();
    /** @type {Edge[]} */
    this._edges = [];
    this.element = h("div.graph", {
      role: "group",
      "aria-label": "The plan as a graph. Arrow keys move between its tasks, Enter shows one.",
    });
    this.element.addEventListener("keydown", (event) => this._move(event));
    new ResizeObserver(() => this._run && this.show(this._run)).observe(this.element);
  }

  /** @param {import("./record.js").RunRecord} run */
  show(run) {
    this._run = run;
    const upright = this.element.clientWidth > 0 && this.element.clientWidth < NARROW;
    const known = JSON.stringify([upright, run.id, [...run.tasks.keys()], run.outcome]);
    if (known !== this._known && run.tasks.size) this._draw(run, upright);
    this._known = known;
    for (const [id, node] of this._nodes) node.light(run, id);
    for (const edge of this._edges) edge.line.setAttribute("class", `edge ${flow(run, edge)}`);
  }

  /**
   * @param {RunRecord} run
   * @param {boolean} upright
   */
  _draw(run, upright) {
    const { nodes, edges } = shapeOf(run);
    const names = [...run.tasks.values()].map(({ task }) => task.task);
    const { size, plan } = upright ? stacked(nodes, edges, names) : spread(nodes, edges, names);
    const at = (/** @type {Place} */ { along, across }) =>
      upright ? { x: across, y: along } : { x: along, y: across };
    const half = (/** @type {NodeId} */ id) =>
      (isEnd(run, id) ? (upright ? END.high : END.wide) : upright ? size.high : size.wide) / 2;
    this._edges = plan.routes.map(({ from, to, points }) => ({
      from,
      to,
      line: svg("path", { d: curve(points, half(from), half(to), at) }),
    }));
    this._nodes = new Map(
      nodes.map((id) => [id, this._node(run, id, at(plan.places.get(id) || { along: 0, across: 0 }), size)]),
    );
    const extent = at(plan);
    const drawing = svg(
      "svg",
      {
        width: extent.x + 2 * MARGIN,
        height: extent.y + 2 * MARGIN,
        viewBox: `${-MARGIN} ${-MARGIN} ${extent.x + 2 * MARGIN} ${extent.y + 2 * MARGIN}`,
      },
      ...this._edges.map(({ line }) => line),
      ...[...this._nodes.values()].map(({ element }) => element),
    );
    drawing.style.minWidth = `${READABLE * extent.x}px`;
    for (const [id, node] of this._nodes) node.light(run, id);
    this.element.replaceChildren(drawing);
    for (const node of this._nodes.values()) node.fit();
    this._stops()[0]?.setAttribute("tabindex", "0");
  }

  /**
   * @param {RunRecord} run
   * @param {NodeId} id
   * @param {Point} place
   * @param {Size} size
   */
  _node(run, id, place, size) {
    if (id === OUTCOME) return new End(run.outcome?.name || "", run.outcome?.about || "", true, place);
    const input = (run.spec.inputs || []).find(({ name }) => name === id);
    const name = input?.artifact?.name || String(id);
    const task = taskOf(run, id);
    if (!task) return new End(name, input?.modality ? `Input: ${name}` : `File: ${name}`, false, place);
    return new TaskNode(task, place, size, this._choose);
  }

  _stops() {
    return /** @type {SVGElement[]} */ ([...this.element.querySelectorAll("[role=button]")]);
  }

  /** @param {KeyboardEvent} event */
  _move(event) {
    const step = STEPS.get(event.key);
    const stops = this._stops();
    const at = stops.findIndex((stop) => stop === document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = stops[(at + step + stops.length) % stops.length];
    stops.forEach((stop) => stop.setAttribute("tabindex", stop === next ? "0" : "-1"));
    next.focus();
  }
}

/** Node of an input or of the answer. */
class End {
  /**
   * @param {string} name
   * @param {string} about
   * @param {boolean} last whether it is the answer
   * @param {Point} place
   */
  constructor(name, about, last, { x, y }) {
    this._last = last;
    this.element = svg(
      "g.end",
      {},
      svg("rect", { x: x - END.wide / 2, y: y - END.high / 2, width: END.wide, height: END.high, rx: END.high / 2 }),
      svg("text", { x, y: y + 4.5, "text-anchor": "middle" }, shortened(name, END.letters)),
      svg("title", {}, about),
    );
  }

  /** @param {RunRecord} run */
  light(run) {
    const done = this._last ? run.answer && run.over : run.began;
    this.element.classList.toggle("is-done", Boolean(done));
    this.element.classList.toggle("is-running", Boolean(this._last && run.answer && !run.over));
  }

  fit() {}
}

class TaskNode {
  /**
   * @param {import("./record.js").TaskRecord} task
   * @param {Point} place
   * @param {Size} size
   * @param {(task: number) => void} choose
   */
  constructor(task, { x, y }, size, choose) {
    const left = x - size.wide / 2;
    const top = y - size.high / 2;
    this._wide = size.wide;
    this._slim = size.wide < NODE.wide;
    const line = (/** @type {number} */ index) => ({ x: left + 36, y: top + 25 + LINE * index });
    const names = wrapped(task.task.task, size.wide);
    this._names = names.map((text, index) => svg("text.name", line(index), text));
    this._by = svg("text.by", line(names.length));
    this._shown = this._label = "";
    this._glyph = svg("path");
    this._bar = svg("rect.bar", { x: left + 10, y: top + size.high - 5, height: 2.5, width: 0, rx: 1.25 });
    const act = () => choose(task.id);
    this.element = svg(
      "g",
      {
        role: "button",
        tabindex: "-1",
        click: act,
        keydown: (event) => ["Enter", " "].includes(event.key) && (event.preventDefault(), act()),
      },
      svg("rect.box", { x: left, y: top, width: size.wide, height: size.high, rx: 12 }),
      svg("g.mark", { transform: `translate(${left + 10} ${top + 12})` }, this._glyph),
      ...this._names,
      this._by,
      this._bar,
    );
  }

  /** Shortens texts that are wider than the box. */
  fit() {
    for (const text of /** @type {SVGTextElement[]} */ ([...this._names, this._by])) {
      const whole = text.textContent || "";
      if (whole.length * WIDEST < this._wide - TEXT) continue;
      for (let most = whole.length - 1; most > 3 && text.getComputedTextLength() > this._wide - TEXT; most -= 1)
        text.textContent = cut(whole, most);
    }
  }

  /**
   * @param {RunRecord} run
   * @param {NodeId} id
   */
  light(run, id) {
    const task = taskOf(run, id);
    if (!task) return;
    const took = seconds(task, run.now);
    const by =
      [model(task).split("/").at(-1), took === undefined || this._slim ? "" : duration(took)]
        .filter(Boolean)
        .join(" · ") || stateLabel(task.state);
    this.element.setAttribute("class", `task is-${stateClass(task.state)}`);
    this._glyph.setAttribute("d", stateIcon(task.state));
    if (this._shown !== by) {
      this._shown = by;
      this._by.textContent = ` ${by}`; // the space separates it from the name in the accessible name
      this.fit();
    }
    const fraction = task.state === "running" ? task.attempts.at(-1)?.progress?.fraction || 0 : 0;
    this._bar.setAttribute("width", String(fraction * (this._wide - 20)));
    const visible = this._names.map(({ textContent }) => textContent).join("") + this._by.textContent;
    const state = `${stateLabel(task.state)}${model(task) ? `, by ${model(task)}` : ""}`;
    const name = `${visible}, task ${task.id}: ${state}`;
    if (this._label !== name) this.element.setAttribute("aria-label", (this._label = name));
  }
}

/**
 * @param {number} nodeAlong
 * @param {number} nodeAcross
 * @param {{along: number, across: number}} gap
 */
function sizes(nodeAlong, nodeAcross, gap) {
  return { nodeAlong, nodeAcross, gapAlong: gap.along, gapAcross: gap.across };
}

/**
 * Left-to-right layout.
 * @param {NodeId[]} nodes
 * @param {Pair[]} edges
 * @param {string[]} names
 */
function spread(nodes, edges, names) {
  const size = { wide: NODE.wide, high: height(names, NODE.wide) };
  return { size, plan: layered(nodes, edges, sizes(size.wide, size.high, GAP)) };
}

/**
 * Top-to-bottom layout.
 * @param {NodeId[]} nodes
 * @param {Pair[]} edges
 * @param {string[]} names
 */
function stacked(nodes, edges, names) {
  const size = { wide: SLIM.wide, high: height(names, SLIM.wide) };
  return { size, plan: layered(nodes, edges, sizes(size.high, size.wide, TIGHT)) };
}

/**
 * Height of all nodes: that of the longest name, and a line for the model.
 * @param {string[]} names
 * @param {number} wide
 */
function height(names, wide) {
  return PADDING + LINE * (1 + Math.max(1, ...names.map((name) => wrapped(name, wide).length)));
}

/**
 * The task of a node; none if the node is an input or the answer.
 * @param {RunRecord} run
 * @param {NodeId} id
 */
function taskOf(run, id) {
  return typeof id === "number" ? run.tasks.get(id) : undefined;
}

/**
 * @param {RunRecord} run
 * @param {NodeId} id
 */
function isEnd(run, id) {
  return !taskOf(run, id);
}

/**
 * Lines of a name, broken at hyphens where it is wider than a node.
 * @param {string} name
 * @param {number} wide
 */
export function wrapped(name, wide) {
  const most = Math.floor((wide - TEXT) / LETTER);
  /** @type {string[]} */
  const lines = [];
  for (const part of name.split(/(?<=-)/)) {
    const last = lines.at(-1);
    if (last !== undefined && (last + part).length <= most) lines[lines.length - 1] = last + part;
    else lines.push(part);
  }
  return lines;
}

/**
 * Nodes and edges of a plan, without duplicate edges.
 * @param {RunRecord} run
 * @returns {{nodes: NodeId[], edges: Pair[]}}
 */
function shapeOf(run) {
  const tasks = [...run.tasks.values()];
  const pairs = tasks.flatMap((task) =>
    Object.values(task.task.arguments || {})
      .flatMap(references)
      .map(({ input, task_id }) => /** @type {Pair} */ ([input ?? task_id, task.id])),
  );
  /** @type {Set<NodeId>} */
  const known = new Set([...run.tasks.keys(), ...(run.spec.inputs || []).map(({ name }) => name)]);
  const edges = new Map(
    pairs
      .filter(([from, to]) => known.has(from) && (isEnd(run, from) || Number(from) < Number(to)))
      .map((pair) => /** @type {[string, Pair]} */ ([pair.map(String).join(" "), pair])),
  );
  const used = new Set([...edges.values()].map(([from]) => from));
  const inputs = (run.spec.inputs || []).map(({ name }) => name).filter((name) => used.has(name));
  const last = run.outcome ? tasks.map(({ id }) => id).filter((id) => !used.has(id)) : [];
  return {
    nodes: [...inputs, ...run.tasks.keys(), ...(last.length ? [OUTCOME] : [])],
    edges: [...edges.values(), ...last.map((id) => /** @type {Pair} */ ([id, OUTCOME]))],
  };
}

/**
 * @param {RunRecord} run
 * @param {Edge} edge
 */
function flow(run, { from, to }) {
  const source = taskOf(run, from);
  const ready = source ? GOOD.has(source.state) : true;
  const target = taskOf(run, to);
  const active = target ? target.state === "running" : run.answer && !run.over;
  if (ready && active) return "is-running";
  return ready && (target ? stateClass(target.state) !== "planned" : run.answer) ? "is-done" : "";
}

/**
 * SVG path of an edge from the first to the last node, through the points between them.
 * @param {Place[]} points
 * @param {number} from half of the first node
 * @param {number} to half of the last node
 * @param {(place: Place) => Point} at
 */
function curve(points, from, to, at) {
  const reach = (/** @type {number} */ index) => (index === 0 ? from : index === points.length - 1 ? to : 0);
  const ends = points.map((point, index) => ({
    ...point,
    in: point.along - reach(index),
    out: point.along + reach(index),
  }));
  const first = ends[0];
  const pieces = ends.slice(1).map((point, index) => {
    const previous = ends[index];
    const middle = (previous.out + point.in) / 2;
    const bend = (/** @type {number} */ along, /** @type {number} */ across) => coordinates(at({ along, across }));
    const straight = index + 2 < ends.length ? ` L ${bend(point.out, point.across)}` : "";
    return `C ${bend(middle, previous.across)} ${bend(middle, point.across)} ${bend(point.in, point.across)}${straight}`;
  });
  return `M ${coordinates(at({ along: first.out, across: first.across }))} ${pieces.join(" ")}`;
}

/** @param {Point} point */
function coordinates({ x, y }) {
  return `${x.toFixed(1)} ${y.toFixed(1)}`;
}
