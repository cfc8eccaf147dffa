"""Renders a comparison as tables or JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gateway.cli.comparison.figures import Agreement, Figures, Row, agreements, figures, is_unanimous
from gateway.cli.comparison.trials import ComparedModel, Trial
from gateway.cli.live_view import one_line
from gateway.client import Artifact

_CHARACTERS = 60
"""Length limit of an answer in the table; the JSON has all of it."""


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison.

    Args:
        task: name of the task.
        models: compared models.
        files: names of the files.
        labels: expected answer of each file; None if there is none.
        rows: trials of all models, by file.
    """

    task: str
    models: Sequence[ComparedModel]
    files: Sequence[str]
    labels: Sequence[str | None]
    rows: Sequence[Row]

    @property
    def is_labelled(self) -> bool:
        return any(label is not None for label in self.labels)

    def figures(self) -> Mapping[ComparedModel, Figures]:
        return {model: figures(self.rows, self.labels, index) for index, model in enumerate(self.models)}

    @property
    def is_complete(self) -> bool:
        return all(trial.answer for row in self.rows for trial in row)


def report(comparison: Comparison) -> dict[str, Any]:
    """The output of compare --json."""
    return {
        "task": comparison.task,
        "models": [
            {**_model(model), **_figures(each, labelled=comparison.is_labelled)}
            for model, each in comparison.figures().items()
        ],
        "agreement": [
            {"models": [str(model) for model in pair], **_agreement(each)}
            for pair, each in agreements(comparison.rows, comparison.models).items()
        ],
        "files": [
            {
                "file": file,
                "label": label,
                "agreed": is_unanimous(row),
                "results": list(map(_trial, comparison.models, row)),
            }
            for file, label, row in zip(comparison.files, comparison.labels, comparison.rows, strict=True)
        ],
    }


def render(comparison: Comparison) -> Iterator[RenderableType]:
    """Renders a table of answers, a table of statistics, and the agreement of models."""
    yield _answers(comparison)
    yield ""
    yield _totals(comparison)
    for (one, other), each in agreements(comparison.rows, comparison.models).items():
        yield Text(f"{one} and {other}: {_describe(each)}")


def _answers(comparison: Comparison) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    headings = ["", "file", *map(str, comparison.models), *(["label"] if comparison.is_labelled else [])]
    for heading in headings:
        table.add_column(one_line(heading), overflow="fold")
    for file, label, row in zip(comparison.files, comparison.labels, comparison.rows, strict=True):
        mark = {True: Text("=", "green"), False: Text("≠", "yellow"), None: Text("")}[is_unanimous(row)]
        label_cells = [Text(one_line(label or ""))] if comparison.is_labelled else []
        table.add_row(mark, Text(one_line(file)), *map(_cell, row), *label_cells)
    return table


def _cell(trial: Trial) -> Text:
    if trial.answer is None:
        return Text(_short(trial.error), style="red")
    return Text(_short(trial.answer.shown))


def _short(text: str) -> str:
    line = " ".join(one_line(text).split())
    return line if len(line) <= _CHARACTERS else line[: _CHARACTERS - 1] + "…"


def _totals(comparison: Comparison) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    by_model = comparison.figures()
    rows: dict[str, list[str]] = {
        "answered": [f"{each.answered} of {len(comparison.files)}" for each in by_model.values()]
    }
    if comparison.is_labelled:
        rows["score"] = [_describe(each.score) for each in by_model.values()]
    rows["median"] = [_seconds(each.median_seconds) for each in by_model.values()]
    if any(each.cost for each in by_model.values()):
        rows["cost"] = [f"{each.cost:.4g}" for each in by_model.values()]
    if any(each.input_tokens + each.output_tokens for each in by_model.values()):
        rows["tokens"] = [f"{each.input_tokens} in, {each.output_tokens} out" for each in by_model.values()]
    for heading in ("", *map(str, comparison.models)):
        table.add_column(one_line(heading))
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _describe(each: Agreement) -> str:
    if each.similarity is None:
        return "not comparable"
    return f"same answer for {each.same} of {each.files} files, similarity {each.similarity:.2f}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.3f} s"


def _model(model: ComparedModel) -> dict[str, Any]:
    return {"model": model.id, "revision": model.revision or None}


def _figures(each: Figures, *, labelled: bool) -> dict[str, Any]:
    return {
        "answered": each.answered,
        "failed": each.failed,
        "score": _agreement(each.score) if labelled else None,
        "median_seconds": each.median_seconds,
        "cost": each.cost,
        "input_tokens": each.input_tokens,
        "output_tokens": each.output_tokens,
    }


def _agreement(each: Agreement) -> dict[str, Any]:
    return {"files": each.files, "same": each.same, "share": each.share, "likeness": each.similarity}


def _trial(model: ComparedModel, trial: Trial) -> dict[str, Any]:
    return {
        "model": model.id,
        "revision": trial.revision or None,
        "expert": trial.expert or None,
        "answer": trial.answer.shown if trial.answer else None,
        "outputs": {port: _output(value) for port, value in trial.outputs.items()},
        "error": trial.error or None,
        "seconds": trial.seconds,
        "cost": trial.cost,
        "input_tokens": trial.input_tokens,
        "output_tokens": trial.output_tokens,
        "run_id": trial.run_id,
    }


def _output(value: Any) -> Any:
    return {"artifact": value.model_dump(mode="json")} if isinstance(value, Artifact) else value
