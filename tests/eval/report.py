"""Scores as tables, with published results for comparison."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from tests.eval.published import PAPER, ROWS

Figures = Mapping[str, Any]
"""Result of scoring.scores."""


def show(taskbench: Figures, own: Figures | None, *, how: str, console: Console) -> None:
    """Prints all tables.

    Args:
        taskbench: scores on TaskBench's requests.
        own: scores on the requests written for this repository, if there are any.
        how: method of the first, such as cross-validated.
        console: to print to.
    """
    tables = [plans(taskbench, how), kinds(taskbench), paper(taskbench)]
    if own:
        tables.append(own_requests(own))
    console.print(Group(*tables))


def plans(figures: Figures, how: str) -> Table:
    """Table of scores, with published results."""
    table = Table(
        "planner", "node F1", "edge F1", "exact", "p50 ms", "p95 ms", "source", title="TaskBench, 23 tools, %"
    )
    table.add_row("ours", *(_number(figures[key]) for key in ("node_f1", "edge_f1", "exact", "p50_ms", "p95_ms")), how)
    for row in ROWS:
        table.add_row(row.planner, _number(row.node_f1), _number(row.edge_f1), "", "", "", row.source)
    return table


def kinds(figures: Figures) -> Table:
    """Table of scores by the shape of the graph."""
    table = Table("type", "requests", "node F1", "edge F1", "exact", title="by type, %")
    for kind, one in figures["by_type"].items():
        table.add_row(kind, str(one["n"]), *(_number(one[key]) for key in ("node_f1", "edge_f1", "exact")))
    return table


def paper(figures: Figures) -> Table:
    """Table of the HuggingGPT paper's metrics, with its published values for its own requests."""
    ours = figures["paper"]
    found = {
        f"{part} {metric.replace('_', ' ')}": value
        for part in ("single", "sequential", "graph")
        for metric, value in ours[part].items()
    }
    judged = ours.get("judge", {})
    found["graph GPT-4 score"] = judged.get("gpt4_score")
    found["plan passing rate"] = judged.get("passing_rate")
    found["plan rationality"] = judged.get("rationality")
    found["end-to-end success"] = judged.get("success_rate")
    table = Table(
        "metric", "ours", "GPT-3.5", "GPT-4, 46 requests", title="HuggingGPT's metrics (its rows: its own requests), %"
    )
    for metric, published in PAPER.items():
        table.add_row(metric, _number(found[metric]), *published)
    return table


def ablation(rows: Sequence[Figures]) -> Table:
    """Table of the LLM planner's scores by demonstrations."""
    table = Table(*(name.replace("_", " ") for name in rows[0]), title="Demonstrations, %")
    for row in rows:
        table.add_row(*map(_number, row.values()))
    return table


def own_requests(figures: Figures) -> Table:
    """Table of scores on own requests: graphs, arguments, confidence and abstention."""
    certainty, abstention = figures["certainty"], figures["certainty"]["abstention"]
    arguments = figures["arguments"]
    rows = {
        "requests": figures["n"],
        "node F1": figures["node_f1"],
        "edge F1": figures["edge_f1"],
        "exact": figures["exact"],
        "arguments F1": arguments["argument_f1"],
        "their names F1": arguments["t_f1"],
        "their values F1": arguments["v_f1"],
        "graph and all arguments right": arguments["right"],
        "wrong but sure (requests)": certainty["wrong_but_sure"],
        "right graph, wrong argument, sure (requests)": certainty["wrong_arguments_but_sure"],
        "calibration error (0 to 1)": certainty["calibration_error"],
        "abstained where it should": abstention["abstained"],
        "with the right note": abstention["right_note"],
        "abstained without need": abstention["abstained_without_need"],
    }
    table = Table("figure", "ours", title="Requests of our own, %")
    for name, value in rows.items():
        table.add_row(name, _number(value))
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
