"""Metrics of graphs: micro-averaged F1 of nodes and edges, and exact matches, in percent."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from tests.eval.lines import Graph

Pair = tuple[Graph, Graph]
"""Planned graph and labelled graph."""

TYPES = ("single", "chain", "dag")


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of elements planned, labelled, and both."""

    planned: int = 0
    labelled: int = 0
    right: int = 0

    @classmethod
    def of_sets(cls, pairs: Iterable[tuple[AbstractSet[Hashable], AbstractSet[Hashable]]]) -> "Tally":
        return cls._sum((len(planned), len(labelled), len(planned & labelled)) for planned, labelled in pairs)

    @classmethod
    def of_bags(cls, pairs: Iterable[tuple[Counter[Any], Counter[Any]]]) -> "Tally":
        """As of_sets, but for multisets."""
        return cls._sum(
            (planned.total(), labelled.total(), (planned & labelled).total()) for planned, labelled in pairs
        )

    @classmethod
    def _sum(cls, counts: Iterable[tuple[int, int, int]]) -> "Tally":
        return cls(*map(sum, zip(*counts, strict=True))) if (counts := list(counts)) else cls()

    @property
    def f1(self) -> float | None:
        """F1 in percent; None if nothing was planned or labelled."""
        whole = self.planned + self.labelled
        return round(200 * self.right / whole, 2) if whole else None


def percent(part: int, whole: int) -> float | None:
    """Percentage with two decimals; None if whole is 0."""
    return round(100 * part / whole, 2) if whole else None


def graph_scores(pairs: Sequence[Pair]) -> dict[str, Any]:
    """n, and in percent node_f1, edge_f1 and exact, the share of plans with exactly the right nodes and edges."""
    return {
        "n": len(pairs),
        "node_f1": Tally.of_sets((planned.nodes, labelled.nodes) for planned, labelled in pairs).f1,
        "edge_f1": Tally.of_sets((planned.edges, labelled.edges) for planned, labelled in pairs).f1,
        "exact": percent(sum(planned.same(labelled) for planned, labelled in pairs), len(pairs)),
    }


def by_type(pairs: Mapping[str, Sequence[Pair]]) -> dict[str, Any]:
    """graph_scores of single tasks, chains and other graphs separately."""
    return {kind: graph_scores(pairs.get(kind, ())) for kind in TYPES}


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed, with two decimals."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[max(0, -int(-share * len(ordered) // 1) - 1)], 2)
