"""hugginggpt compare: compares models on the same files, and prints the comparison as tables or JSON."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.connect import gateway
from gateway.cli.options import ApiKey, Json, Policy, Url
from gateway.cli.terminal import one_line

if TYPE_CHECKING:
    from gateway.comparison.request import ComparisonRequest
    from gateway.comparison.result import Agreement, Comparison
    from gateway.comparison.trials import ComparedModel, Trial

_CHARACTERS = 60
"""Length limit of an answer in the table; the JSON has all of it."""


def compare(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Task of the models; see hugginggpt tasks.")],
    *,
    models: Annotated[
        str,
        typer.Option(
            "--models",
            "-m",
            metavar="A,B",
            help="Two or more models, separated by commas; MODEL@REVISION is one commit.",
        ),
    ],
    files: Annotated[
        list[str],
        typer.Option("--files", "-f", metavar="FILE", help="A file, pattern, URL or id of a stored file. Repeatable."),
    ],
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A CSV with the columns file and label: the expected answers.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another input, or a parameter, for all models. Repeatable."),
    ] = None,
    save_scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Add the scores to this file, which a routing table can refer to."),
    ] = None,
    policy: Annotated[
        Policy | None, typer.Option(help="local: no data leaves the deployment. Unset: the gateway's default.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Run several models on the same files, and compare their answers, duration and cost.

    Two answers are the same if their labels are equal, their words are equal except for case and punctuation, or their
    numbers differ by at most 1 %. Similarity is the share of equal words, labels or values, from 0 to 1. With --labels,
    each model gets a score: the similarity of its answers to the labels. The label of an image with several objects is
    their names, separated by commas, or their number. Each answer is a run of its own, without cached results.

    [bold]Examples[/]

      hugginggpt compare text-classification --models vaderSentiment,py3langid --files 'reviews/*.txt'

      hugginggpt compare object-detection -m opencv/people,opencv/haar-frontalface -f 'photos/*.jpg' --labels right.csv

    Exit status: 0 every model answered for every file; 1 a model failed; 2 invalid arguments.
    """
    from gateway.comparison.files import add_scores
    from gateway.comparison.request import ComparisonRequest

    model_ids = [model.strip() for model in models.split(",") if model.strip()]
    request = ComparisonRequest(
        task, model_ids, files, settings or (), labels, save_scores, policy.value if policy else None
    )
    with terminal.problems_reported():
        comparison = _compare(request, url, api_key)
        if as_json:
            terminal.print_json(comparison.report())
        else:
            console = terminal.out()
            for part in _render(comparison):
                console.print(part)
        if save_scores:
            add_scores(save_scores, task, comparison.scores())
            terminal.err().print(f"saved scores to {save_scores}", soft_wrap=True)
    raise typer.Exit(0 if comparison.is_complete else 1)


def _compare(request: "ComparisonRequest", url: str | None, api_key: str | None) -> "Comparison":
    """Runs every model on every file."""
    from gateway.cli import request_files
    from gateway.comparison.files import check_score_file, labels
    from gateway.comparison.request import compared_models, compared_task
    from gateway.comparison.result import Comparison
    from gateway.comparison.trials import trials

    request.check()
    files = request_files.sources(request.files)
    expected = labels(request.labels, files) if request.labels else [None] * len(files)
    if request.scores:
        check_score_file(request.scores)
    names = [str(file) if isinstance(file, Path | str) else "file" for file in files]
    with (
        terminal.err().status("connecting to the gateway") as status,
        gateway(url, lambda what: status.update(what or "connecting to the gateway"), api_key) as client,
    ):
        task, models = compared_task(client, request), compared_models(client, request)

        def show_progress(number: int, model: "ComparedModel") -> None:
            status.update(f"file {number + 1} of {len(files)}: {model}")

        rows = list(trials(client, task, models, files, show_progress))
    return Comparison(request.task, models, names, expected, rows)


def _render(comparison: "Comparison") -> Iterator[RenderableType]:
    """Renders a table of answers, a table of statistics, and the agreement of models."""
    yield _answers(comparison)
    yield ""
    yield _totals(comparison)
    for (one, other), each in comparison.agreements().items():
        yield Text(f"{one} and {other}: {_describe(each)}")


def _answers(comparison: "Comparison") -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    headings = ["", "file", *map(str, comparison.models), *(["label"] if comparison.is_labelled else [])]
    for heading in headings:
        table.add_column(one_line(heading), overflow="fold")
    rows = zip(comparison.files, comparison.labels, comparison.unanimity, comparison.rows, strict=True)
    for file, label, is_unanimous, row in rows:
        mark = {True: Text("=", "green"), False: Text("≠", "yellow"), None: Text("")}[is_unanimous]
        label_cells = [Text(one_line(label or ""))] if comparison.is_labelled else []
        table.add_row(mark, Text(one_line(file)), *map(_cell, row), *label_cells)
    return table


def _cell(trial: "Trial") -> Text:
    if trial.answer is None:
        return Text(_short(trial.error), style="red")
    return Text(_short(trial.answer.shown))


def _short(text: str) -> str:
    line = " ".join(one_line(text).split())
    return line if len(line) <= _CHARACTERS else line[: _CHARACTERS - 1] + "…"


def _totals(comparison: "Comparison") -> Table:
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


def _describe(each: "Agreement") -> str:
    if each.similarity is None:
        return "not comparable"
    return f"same answer for {each.same} of {each.files} files, similarity {each.similarity:.2f}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.3f} s"
