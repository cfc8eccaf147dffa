"""Metrics of the HuggingGPT paper for plans (Shen et al., NeurIPS 2023, arXiv 2303.17580, section 4.2).

The paper names its metrics without a script. In its table for single tasks recall equals accuracy, which holds only for
recall weighted by support, so all metrics of that table are weighted by support.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.eval.lines import Graph
from tests.eval.metrics import Pair, Tally, percent


def scores(pairs: Mapping[str, Sequence[Pair]]) -> dict[str, Any]:
    """Scores of single tasks, sequences and graphs as in the paper; percent, except edit distances from 0 to 1."""
    return {
        "single": single(pairs.get("single", ())),
        "sequential": sequential(pairs.get("chain", ())),
        "graph": graph(pairs.get("dag", ())),
    }


def single(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Accuracy, and precision, recall and F1 per task weighted by support; plans with several tasks are wrong."""
    labels = [(_only(planned), _only(labelled)) for planned, labelled in pairs]
    support = Counter(labelled for _, labelled in labels)
    right = Counter(labelled for planned, labelled in labels if planned == labelled)
    planned = Counter(planned for planned, _ in labels)
    whole = len(labels)
    precision = sum(support[name] * right[name] / (planned[name] or 1) for name in support)
    f1 = sum(support[name] * 2 * right[name] / (planned[name] + support[name]) for name in support)
    return {
        "n": whole,
        "accuracy": percent(right.total(), whole),
        "precision": _mean(100 * precision, whole),
        "recall": percent(right.total(), whole),
        "f1": _mean(100 * f1, whole),
    }


def sequential(pairs: Sequence[Pair]) -> dict[str, Any]:
    """F1 over the tasks of chains with repetitions, and accuracy and mean edit distance of the sequences."""
    return {
        "n": len(pairs),
        "accuracy": percent(sum(in_order(planned) == in_order(labelled) for planned, labelled in pairs), len(pairs)),
        "f1": Tally.of_bags((Counter(planned.tasks), Counter(labelled.tasks)) for planned, labelled in pairs).f1,
        "edit_distance": _mean(sum(distance(in_order(one), in_order(other)) for one, other in pairs), len(pairs)),
    }


def graph(pairs: Sequence[Pair]) -> dict[str, Any]:
    """F1 over tasks and links together, and accuracy: the share of graphs with all tasks and links right."""
    parts = [(planned.nodes | planned.edges, labelled.nodes | labelled.edges) for planned, labelled in pairs]
    return {
        "n": len(pairs),
        "accuracy": percent(sum(planned == labelled for planned, labelled in parts), len(pairs)),
        "f1": Tally.of_sets(parts).f1,
    }


def distance(one: Sequence[str], other: Sequence[str]) -> float:
    """Levenshtein distance divided by the length of the longer sequence: 0 equal, 1 nothing in common."""
    row = list(range(len(other) + 1))
    for number, left in enumerate(one, start=1):
        before, row[0] = row[0], number
        for index, right in enumerate(other, start=1):
            before, row[index] = row[index], min(row[index] + 1, row[index - 1] + 1, before + (left != right))
    return row[-1] / (max(len(one), len(other)) or 1)


def in_order(plan: Graph) -> tuple[str, ...]:
    """Tasks in topological order, since labels may list a chain in another order."""
    waiting, ordered = list(plan.tasks), list[str]()
    while waiting:
        ready = (name for name in waiting if not any(s in waiting and s != name for s, t in plan.links if t == name))
        following = next(ready, waiting[0])
        waiting.remove(following)
        ordered.append(following)
    return tuple(ordered)


def _only(plan: Graph) -> str:
    return plan.tasks[0] if len(plan.tasks) == 1 else f"{len(plan.tasks)} tasks"


def _mean(total: float, count: int) -> float | None:
    return round(total / count, 2) if count else None
