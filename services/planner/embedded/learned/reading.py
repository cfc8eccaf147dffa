"""The graph that a request is read as: of the likely ones, that of the greatest expected worth."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from services.planner.embedded.learned.evidence import Evidence, evidence
from services.planner.embedded.learned.parsing import Graph, parse
from services.planner.embedded.learned.stages import Hints, candidates
from services.planner.embedded.learned.weights import Weights
from services.planner.embedded.learned.words import Token

NODE_THRESHOLD, LINK_THRESHOLD = 0.43, 0.3
"""A task or link is worth more in a plan than left out above these probabilities: half the F1 that is reached."""


@dataclass(frozen=True)
class Reading:
    """What a request was read as."""

    graph: Graph
    probability: float
    """Of exactly this graph."""
    graphs: Mapping[Graph, float]
    evidence: Evidence


def read(found: list[Token], hints: Hints, learned: Weights) -> Reading:
    """Reads the words with the features of the rules."""
    spoken_for = evidence(found, learned)
    graphs = parse(candidates(spoken_for, hints, learned), learned)
    graph = worthiest(graphs)
    return Reading(graph, graphs[graph], graphs, spoken_for)


def worthiest(graphs: Mapping[Graph, float]) -> Graph:
    """The graph that is probable as a whole, and whose tasks and links are, each for itself, in all graphs together.

    Minimum Bayes risk for what is counted: whole plans, tasks, and links, these at half the weight.
    """
    intents: dict[int, float] = defaultdict(float)
    links: dict[tuple[int, int], float] = defaultdict(float)
    for graph, share in graphs.items():
        for intent in graph.intents:
            intents[intent] += share
        for link in graph.links:
            links[link] += share

    def worth(graph: Graph) -> float:
        nodes = sum(intents[intent] - NODE_THRESHOLD for intent in graph.intents)
        return graphs[graph] + nodes + 0.5 * sum(links[link] - LINK_THRESHOLD for link in graph.links)

    return max(graphs, key=worth)
