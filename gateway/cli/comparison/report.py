"""A comparison as it is shown: a table for people, or JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gateway.cli.comparison.figures import Agreement, Figures, Row, agreed, agreements, figures
from gateway.cli.comparison.trials import Contestant, Trial
from gateway.cli.live_view import one_line
from gateway.client import Artifact

_CHARACTERS = 60
"""Of an answer in the table; all of it is in the JSON."""


@dataclass(frozen=True)
class Comparison:
    """What came of it.

    Args:
        task: by name.
        models: in order.
        files: names, in order.
        labels: what is right for each file.
        rows: what each model made of each file.
    """

    task: str
    models: Sequence[Contestant]
    files: Sequence[str]
    labels: Sequence[str | None]
    rows: Sequence[Row]

    @property
    def is_labelled(self) -> bool:
        return any(label is not None for label in self.labels)

    def figures(self) -> Mapping[Contestant, Figures]:
        return {model: figures(self.rows, self.labels, place) for place, model in enumerate(self.models)}

    @property
    def is_complete(self) -> bool:
        return all(trial.answer for row in self.rows for trial in row)


def report(made: Comparison) -> dict[str, Any]:
    """What compare --json prints."""
    return {
        "task": made.task,
        "models": [
            {**_model(model), **_figures(each, labelled=made.is_labelled)} for model, each in made.figures().items()
        ],
        "agreement": [
            {"models": [str(model) for model in pair], **_agreement(each)}
            for pair, each in agreements(made.rows, made.models).items()
        ],
        "files": [
            {"file": file, "label": label, "agreed": agreed(row), "results": list(map(_trial, made.models, row))}
            for file, label, row in zip(made.files, made.labels, made.rows, strict=True)
        ],
    }


def drawn(made: Comparison) -> Iterator[RenderableType]:
    """Two tables: answers side by side, and what they come to; then how far models agree."""
    yield _answers(made)
    yield ""
    yield _sums(made)
    for (one, other), each in agreements(made.rows, made.models).items():
        yield Text(f"{one} and {other}: {_said(each)}")


def _answers(made: Comparison) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    headings = ["", "file", *map(str, made.models), *(["label"] if made.is_labelled else [])]
    for heading in headings:
        table.add_column(one_line(heading), overflow="fold")
    for file, label, row in zip(made.files, made.labels, made.rows, strict=True):
        mark = {True: Text("=", "green"), False: Text("≠", "yellow"), None: Text("")}[agreed(row)]
        told = [Text(one_line(label or ""))] if made.is_labelled else []
        table.add_row(mark, Text(one_line(file)), *map(_cell, row), *told)
    return table


def _cell(trial: Trial) -> Text:
    if trial.answer is None:
        return Text(_short(trial.error), style="red")
    return Text(_short(trial.answer.shown))


def _short(text: str) -> str:
    line = " ".join(one_line(text).split())
    return line if len(line) <= _CHARACTERS else line[: _CHARACTERS - 1] + "…"


def _sums(made: Comparison) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    told = made.figures()
    rows: dict[str, list[str]] = {"answered": [f"{each.answered} of {len(made.files)}" for each in told.values()]}
    if made.is_labelled:
        rows["score"] = [_said(each.score) for each in told.values()]
    rows["median"] = [_seconds(each.median_seconds) for each in told.values()]
    if any(each.cost for each in told.values()):
        rows["cost"] = [f"{each.cost:.4g}" for each in told.values()]
    if any(each.input_tokens + each.output_tokens for each in told.values()):
        rows["tokens"] = [f"{each.input_tokens} in, {each.output_tokens} out" for each in told.values()]
    for heading in ("", *map(str, made.models)):
        table.add_column(one_line(heading))
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _said(each: Agreement) -> str:
    if each.likeness is None:
        return "cannot be compared"
    return f"the same for {each.same} of {each.files}, alike {each.likeness:.2f}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.3f} s"


def _model(model: Contestant) -> dict[str, Any]:
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
    return {"files": each.files, "same": each.same, "share": each.share, "likeness": each.likeness}


def _trial(model: Contestant, trial: Trial) -> dict[str, Any]:
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
