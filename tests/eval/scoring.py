"""All scores of a set of outcomes as one JSON object, and files of predictions."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.eval import arguments, certainty, paper
from tests.eval.comparison import Compared, compare, graph
from tests.eval.lines import Line
from tests.eval.metrics import Pair, by_type, graph_scores, quantile
from tests.eval.planners import Outcome
from tests.eval.tools import Spelling


def scores(lines: Sequence[Line], outcomes: Sequence[Outcome], written: Spelling) -> dict[str, Any]:
    """All scores. Lines without labels count in n and in the times; a failed request counts as an empty plan."""
    everything = compare(lines, outcomes, written)
    kinds = _grouped((one.line.type, one) for one in everything)
    languages = _grouped((one.line.language, one) for one in everything if one.line.language)
    times = [outcome.milliseconds for outcome in outcomes]
    pairs = [pair for group in kinds.values() for pair in group]
    return {
        **graph_scores(pairs),
        "n": len(lines),
        "labelled": len(pairs),
        "by_type": by_type(kinds),
        "by_language": {language: graph_scores(group) for language, group in languages.items()},
        "p50_ms": quantile(times, 0.5),
        "p95_ms": quantile(times, 0.95),
        "failures": [{"id": one.line.id, "error": one.outcome.error} for one in everything if one.outcome.error],
        "paper": paper.scores(kinds),
        "arguments": arguments.scores(everything),
        "certainty": certainty.scores(everything),
    }


def write_predictions(path: Path, lines: Sequence[Line], outcomes: Sequence[Outcome], written: Spelling) -> None:
    """Writes one line {"id", "tasks", "links"} per request, in order, with the task names of the file."""
    graphs = [graph(outcome.draft, written) for outcome in outcomes]
    entries = [
        {"id": line.id, "tasks": plan.tasks, "links": plan.links} for line, plan in zip(lines, graphs, strict=True)
    ]
    path.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries), encoding="utf-8")


def _grouped(named: Iterable[tuple[str, Compared]]) -> Mapping[str, Sequence[Pair]]:
    """Pairs of planned and labelled graphs by group; lines without labels are omitted."""
    groups: Mapping[str, list[Pair]] = defaultdict(list)
    for name, one in named:
        if one.answer is not None:
            groups[name].append((one.plan, one.answer.graph))
    return groups
