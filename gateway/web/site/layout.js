/**
 * Layered layout of a directed acyclic graph: each node in the layer after its last predecessor, nodes within a layer
 * ordered to reduce edge crossings, and edges across several layers routed through virtual nodes.
 */

const SWEEPS = 6;

/** Limit of virtual nodes; further edges are straight. */
const MAX_VIRTUAL_NODES = 2000;

/**
 * @typedef {{along: number, across: number}} Place the middle of a node: along the layers, and across them
 * @typedef {{nodeAlong: number, nodeAcross: number, gapAlong: number, gapAcross: number}} Sizes
 * @param {(string | number)[]} nodes
 * @param {[string | number, string | number][]} edges from, to
 * @param {Sizes} sizes
 * @returns {{along: number, across: number, places: Map<any, Place>, routes: {from: any, to: any, points: Place[]}[]}}
 */
export function layered(nodes, edges, sizes) {
  const layerOf = depths(nodes, edges);
  const { layers, chains } = threaded(nodes, edges, layerOf);
  const links = chains.flatMap((chain) => chain.slice(1).map((to, at) => [chain[at], to]));
  const before = neighbours(links, 1, 0);
  const after = neighbours(links, 0, 1);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    const at = positions(layers);
    for (const layer of down ? layers : [...layers].reverse()) ordered(layer, down ? before : after, at);
  }
  return placed(layers, chains, before, after, sizes);
}

function depths(nodes, edges) {
  const feeds = neighbours(edges, 1, 0);
  const found = new Map();
  const waiting = [...nodes].reverse();
  while (waiting.length) {
    const node = waiting.at(-1);
    const open = (feeds.get(node) || []).filter((feed) => !found.has(feed));
    if (open.length && !found.has(node)) {
      waiting.push(...open);
    } else {
      waiting.pop();
      found.set(node, Math.max(-1, ...(feeds.get(node) || []).map((feed) => found.get(feed))) + 1);
    }
  }
  return found;
}

/** Layers with virtual nodes, and the chain of nodes of every edge. */
function threaded(nodes, edges, layerOf) {
  const layers = [];
  const put = (node, layer) => (layers[layer] ??= []).push(node);
  nodes.forEach((node) => put(node, layerOf.get(node)));
  let passed = 0;
  const chains = edges.map(([from, to]) => {
    const chain = [from];
    for (let layer = layerOf.get(from) + 1; layer < layerOf.get(to) && passed < MAX_VIRTUAL_NODES; layer += 1) {
      passed += 1;
      const passing = { layer };
      put(passing, layer);
      chain.push(passing);
    }
    return [...chain, to];
  });
  return { layers, chains };
}

function neighbours(links, of, other) {
  const found = new Map();
  for (const link of links) {
    if (!found.has(link[of])) found.set(link[of], []);
    found.get(link[of]).push(link[other]);
  }
  return found;
}

function positions(layers) {
  const found = new Map();
  for (const layer of layers) layer.forEach((node, at) => found.set(node, at - (layer.length - 1) / 2));
  return found;
}

function ordered(layer, towards, at) {
  const weight = new Map(
    layer.map((node) => [node, average((towards.get(node) || [node]).map((other) => at.get(other)))]),
  );
  layer.sort((one, other) => weight.get(one) - weight.get(other));
  layer.forEach((node, place) => at.set(node, place - (layer.length - 1) / 2));
}

function placed(layers, chains, before, after, { nodeAlong, nodeAcross, gapAlong, gapAcross }) {
  const step = nodeAcross + gapAcross;
  const across = new Map([...positions(layers)].map(([node, at]) => [node, at * step]));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) settled(layer, down ? before : after, across, step);
  }
  const least = Math.min(...across.values()) - nodeAcross / 2;
  const place = (node, layer) => ({
    along: layer * (nodeAlong + gapAlong) + nodeAlong / 2,
    across: across.get(node) - least,
  });
  const places = new Map(layers.flatMap((layer, at) => layer.map((node) => [node, place(node, at)])));
  return {
    along: layers.length * (nodeAlong + gapAlong) - gapAlong,
    across: Math.max(...across.values()) - least + nodeAcross / 2,
    places,
    routes: chains.map((chain) => ({
      from: chain[0],
      to: chain.at(-1),
      points: chain.map((node) => places.get(node)),
    })),
  };
}

/** Moves the nodes of a layer towards their neighbours, keeping order and minimum distances. */
function settled(layer, towards, across, step) {
  const desired = layer.map((node) => average((towards.get(node) || [node]).map((other) => across.get(other))));
  const resolved = desired.reduce((done, position) => [...done, Math.max(position, (done.at(-1) ?? -Infinity) + step)], []);
  const shift = average(desired.map((position, at) => position - resolved[at]));
  layer.forEach((node, at) => across.set(node, resolved[at] + shift));
}

function average(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}
