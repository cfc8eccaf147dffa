import assert from "node:assert/strict";
import { test } from "node:test";

import { layered } from "../site/layout.js";

const SIZES = { nodeAlong: 10, nodeAcross: 10, gapAlong: 5, gapAcross: 5 };

test("node is in the layer after its last predecessor", () => {
  const edges = [
    ["a", "b"],
    ["b", "c"],
    ["a", "c"],
  ];
  const { places } = layered(["a", "b", "c"], edges, SIZES);
  assert.deepEqual(
    ["a", "b", "c"].map((node) => places.get(node).along),
    [5, 20, 35],
  );
});

test("edge across several layers has a point in each", () => {
  const { routes } = layered(
    ["a", "b", "c"],
    [
      ["a", "b"],
      ["b", "c"],
      ["a", "c"],
    ],
    SIZES,
  );
  assert.equal(routes[2].points.length, 3);
});

test("nodes of a layer do not overlap", () => {
  const { places, across } = layered([1, 2, 3], [], SIZES);
  assert.deepEqual(
    [1, 2, 3].map((node) => places.get(node).across),
    [5, 20, 35],
  );
  assert.equal(across, 40);
});

test("order within layers avoids crossings", () => {
  const { places } = layered(
    ["a", "b", "x", "y"],
    [
      ["a", "y"],
      ["b", "x"],
    ],
    SIZES,
  );
  assert.equal(places.get("a").across < places.get("b").across, places.get("y").across < places.get("x").across);
});

test("a thousand tasks in a row are laid out", () => {
  const nodes = Array.from({ length: 1000 }, (_, at) => at);
  const edges = nodes.slice(1).map((node) => [node - 1, node]);
  assert.equal(layered(nodes, edges, SIZES).along, 1000 * 15 - 5);
});
