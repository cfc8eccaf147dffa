"""Reads a request as a graph: of the likely graphs, the one of the greatest expected value."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.planner.embedded.learned.beam_search import Graph, parse
from services.planner.embedded.learned.candidates import Hints, candidates
from services.planner.embedded.learned.evidence import Evidence, evidence
from services.planner.embedded.learned.features import Token
from services.planner.embedded.learned.weights import Weights

NODE_THRESHOLD, LINK_THRESHOLD = 0.43, 0.3
"""Probabilities above which a task or link raises the expected F1 of a plan: about half the F1 that is reached."""


@dataclass(frozen=True)
class Reading:
    """What a request was read as."""

    graph: Graph
    probability: float
    """Of exactly this graph."""
    graphs: Mapping[Graph, float]
    evidence: Evidence
    tokens: Sequence[Token]
    """Of the request."""

    def position(self, intent: int) -> float:
        """Position of the words that call for an intent, in tokens."""
        return float(self.evidence.position[intent])

    def start(self, intent: int) -> int:
        """Start of the words that call for an intent, in characters of the request."""
        token = min(round(self.position(intent)), len(self.tokens) - 1)
        return self.tokens[token].start if self.tokens else 0


def read(found: list[Token], hints: Hints, learned: Weights) -> Reading:
    """Reads the words with the features of the rules."""
    scores = evidence(found, learned)
    graphs = parse(candidates(scores, hints, learned), learned)
    graph = best_graph(graphs)
    return Reading(graph, graphs[graph], graphs, scores, found)


def best_graph(graphs: Mapping[Graph, float]) -> Graph:
    """Returns the graph of minimum Bayes risk.

    Its value is its probability, and those of its tasks and links in all graphs together; links have half the weight.
    """
    intents: dict[int, float] = defaultdict(float)
    links: dict[tuple[int, int], float] = defaultdict(float)
    for graph, share in graphs.items():
        for intent in graph.intents:
            intents[intent] += share
        for link in graph.links:
            links[link] += share

    def value(graph: Graph) -> float:
        nodes = sum(intents[intent] - NODE_THRESHOLD for intent in graph.intents)
        return graphs[graph] + nodes + 0.5 * sum(links[link] - LINK_THRESHOLD for link in graph.links)

    return max(graphs, key=value)
