/**
 * Layered layout of a directed acyclic graph: each node in the layer after its last predecessor, nodes within a layer
 * ordered to reduce edge crossings, and edges across several layers routed through virtual nodes.
 */

const SWEEPS = 6;

/** Limit of virtual nodes; further edges are straight. */
const MAX_VIRTUAL_NODES = 2000;

/**
 * @typedef {string | number | symbol} NodeId
 * @typedef {NodeId | {layer: number}} Point a node, or a virtual node of an edge
 * @typedef {[Point, Point]} Link
 * @typedef {Map<Point, Point[]>} Neighbours
 * @typedef {{along: number, across: number}} Place the middle of a node: along the layers, and across them
 * @typedef {{nodeAlong: number, nodeAcross: number, gapAlong: number, gapAcross: number}} Sizes
 * @typedef {{from: NodeId, to: NodeId, points: Place[]}} Route
 */

/**
 * @param {NodeId[]} nodes
 * @param {[NodeId, NodeId][]} edges from, to
 * @param {Sizes} sizes
 * @returns {{along: number, across: number, places: Map<Point, Place>, routes: Route[]}}
 */
export function layered(nodes, edges, sizes) {
  const layerOf = depths(nodes, edges);
  const { layers, chains } = threaded(nodes, edges, layerOf);
  const links = chains.flatMap((chain) => chain.slice(1).map((to, at) => /** @type {Link} */ ([chain[at], to])));
  const before = neighbours(links, 1, 0);
  const after = neighbours(links, 0, 1);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    const at = positions(layers);
    for (const layer of down ? layers : [...layers].reverse()) ordered(layer, down ? before : after, at);
  }
  return placed(layers, chains, before, after, sizes);
}

/**
 * @param {NodeId[]} nodes
 * @param {[NodeId, NodeId][]} edges
 * @returns {Map<NodeId, number>}
 */
function depths(nodes, edges) {
  const feeds = /** @type {Map<NodeId, NodeId[]>} */ (neighbours(edges, 1, 0));
  /** @type {Map<NodeId, number>} */
  const found = new Map();
  const depth = (/** @type {NodeId} */ node) => found.get(node) ?? 0;
  const waiting = [...nodes].reverse();
  for (let node = waiting.at(-1); node !== undefined; node = waiting.at(-1)) {
    const open = (feeds.get(node) || []).filter((feed) => !found.has(feed));
    if (open.length && !found.has(node)) {
      waiting.push(...open);
    } else {
      waiting.pop();
      found.set(node, Math.max(-1, ...(feeds.get(node) || []).map(depth)) + 1);
    }
  }
  return found;
}

/**
 * Layers with virtual nodes, and the chain of nodes of every edge.
 * @param {NodeId[]} nodes
 * @param {[NodeId, NodeId][]} edges
 * @param {Map<NodeId, number>} layerOf
 * @returns {{layers: Point[][], chains: Point[][]}}
 */
function threaded(nodes, edges, layerOf) {
  /** @type {Point[][]} */
  const layers = [];
  const put = (/** @type {Point} */ node, /** @type {number} */ layer) => (layers[layer] ??= []).push(node);
  const layerAt = (/** @type {NodeId} */ node) => layerOf.get(node) ?? 0;
  nodes.forEach((node) => put(node, layerAt(node)));
  let passed = 0;
  const chains = edges.map(([from, to]) => {
    /** @type {Point[]} */
    const chain = [from];
    for (let layer = layerAt(from) + 1; layer < layerAt(to) && passed < MAX_VIRTUAL_NODES; layer += 1) {
      passed += 1;
      const passing = { layer };
      put(passing, layer);
      chain.push(passing);
    }
    return [...chain, to];
  });
  return { layers, chains };
}

/**
 * @param {Link[]} links
 * @param {0 | 1} of
 * @param {0 | 1} other
 * @returns {Neighbours}
 */
function neighbours(links, of, other) {
  /** @type {Neighbours} */
  const found = new Map();
  for (const link of links) {
    const known = found.get(link[of]);
    if (known) known.push(link[other]);
    else found.set(link[of], [link[other]]);
  }
  return found;
}

/**
 * @param {Point[][]} layers
 * @returns {Map<Point, number>}
 */
function positions(layers) {
  const found = new Map();
  for (const layer of layers) layer.forEach((node, at) => found.set(node, at - (layer.length - 1) / 2));
  return found;
}

/**
 * @param {Point[]} layer
 * @param {Neighbours} towards
 * @param {Map<Point, number>} at
 */
function ordered(layer, towards, at) {
  const weight = new Map(
    layer.map((node) => [node, average((towards.get(node) || [node]).map((other) => at.get(other) ?? 0))]),
  );
  layer.sort((one, other) => (weight.get(one) ?? 0) - (weight.get(other) ?? 0));
  layer.forEach((node, place) => at.set(node, place - (layer.length - 1) / 2));
}

/**
 * @param {Point[][]} layers
 * @param {Point[][]} chains
 * @param {Neighbours} before
 * @param {Neighbours} after
 * @param {Sizes} sizes
 */
function placed(layers, chains, before, after, { nodeAlong, nodeAcross, gapAlong, gapAcross }) {
  const step = nodeAcross + gapAcross;
  const across = new Map([...positions(layers)].map(([node, at]) => [node, at * step]));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) settled(layer, down ? before : after, across, step);
  }
  const least = Math.min(...across.values()) - nodeAcross / 2;
  const place = (/** @type {Point} */ node, /** @type {number} */ layer) => ({
    along: layer * (nodeAlong + gapAlong) + nodeAlong / 2,
    across: (across.get(node) ?? 0) - least,
  });
  /** @type {Map<Point, Place>} */
  const places = new Map();
  layers.forEach((layer, at) => layer.forEach((node) => places.set(node, place(node, at))));
  return {
    along: layers.length * (nodeAlong + gapAlong) - gapAlong,
    across: Math.max(...across.values()) - least + nodeAcross / 2,
    places,
    routes: chains.map((chain) => ({
      from: /** @type {NodeId} */ (chain[0]),
      to: /** @type {NodeId} */ (chain.at(-1)),
      points: chain.map((node) => places.get(node) || { along: 0, across: 0 }),
    })),
  };
}

/**
 * Moves the nodes of a layer towards their neighbours, keeping order and minimum distances.
 * @param {Point[]} layer
 * @param {Neighbours} towards
 * @param {Map<Point, number>} across
 * @param {number} step
 */
function settled(layer, towards, across, step) {
  const desired = layer.map((node) => average((towards.get(node) || [node]).map((other) => across.get(other) ?? 0)));
  /** @type {number[]} */
  const resolved = [];
  for (const position of desired) resolved.push(Math.max(position, (resolved.at(-1) ?? -Infinity) + step));
  const shift = average(desired.map((position, at) => position - resolved[at]));
  layer.forEach((node, at) => across.set(node, resolved[at] + shift));
}

/** @param {number[]} numbers */
function average(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}
