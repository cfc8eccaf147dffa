"""From lines and outcomes to one JSON object, and to predictions in the file's own spelling."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from services.planner.check import references
from services.planner.plan import Draft
from tests.eval import arguments, certainty, paper
from tests.eval.lines import Graph, Line
from tests.eval.metrics import Pair, by_type, graph_scores, quantile
from tests.eval.planners import Outcome
from tests.eval.tools import Spelling, name


def graph(draft: Draft, written: Spelling) -> Graph:
    """A plan as the file would write it; every pair once."""
    names = {task.id: name(task, written) for task in draft.tasks}
    links = {(names[r.task_id], names[task.id]): None for task in draft.tasks for r in references(task)}
    return Graph(tuple(names.values()), tuple(links))


def scores(lines: Sequence[Line], outcomes: Sequence[Outcome], written: Spelling) -> dict[str, Any]:
    """All figures. Lines without labels count in n and in the times; a failed request counts as an empty plan."""
    graphs = [graph(outcome.draft, written) for outcome in outcomes]
    pairs = list(_pairs(lines, graphs))
    kinds: Mapping[str, list[Pair]] = defaultdict(list)
    for kind, pair in pairs:
        kinds[kind].append(pair)
    times = [outcome.milliseconds for outcome in outcomes]
    return {
        **graph_scores([pair for _, pair in pairs]),
        "n": len(lines),
        "labelled": len(pairs),
        "by_type": by_type(kinds),
        "p50_ms": quantile(times, 0.5),
        "p95_ms": quantile(times, 0.95),
        "failures": list(_failures(lines, outcomes)),
        "paper": paper.scores(kinds),
        "arguments": arguments.scores(lines, outcomes),
        "certainty": certainty.scores(lines, [outcome.draft for outcome in outcomes], graphs),
    }


def write_predictions(path: Path, lines: Sequence[Line], outcomes: Sequence[Outcome], written: Spelling) -> None:
    """One line {"id", "tasks", "links"} per request, in the order of the requests."""
    graphs = [graph(outcome.draft, written) for outcome in outcomes]
    entries = [
        {"id": line.id, "tasks": plan.tasks, "links": plan.links} for line, plan in zip(lines, graphs, strict=True)
    ]
    path.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries), encoding="utf-8")


def _pairs(lines: Sequence[Line], graphs: Sequence[Graph]) -> Iterator[tuple[str, Pair]]:
    for line, planned in zip(lines, graphs, strict=True):
        if line.graph is not None:
            yield line.type, (planned, line.graph)


def _failures(lines: Sequence[Line], outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    for line, outcome in zip(lines, outcomes, strict=True):
        if outcome.error:
            yield {"id": line.id, "error": outcome.error}
