"""Implementation of hugginggpt compare."""

from pathlib import Path

from gateway.cli import attachments, terminal
from gateway.cli.comparison import scores
from gateway.cli.comparison.labels import labels
from gateway.cli.comparison.report import Comparison, render, report
from gateway.cli.comparison.request import ComparisonRequest, compared_models, compared_task
from gateway.cli.comparison.trials import ComparedModel, trials
from gateway.cli.connect import gateway
from gateway.client import Source


def compare(request: ComparisonRequest, url: str | None, api_key: str | None, *, as_json: bool) -> bool:
    """Compares models, prints the comparison and saves scores; returns whether every model answered for every file."""
    comparison = _run(request, url, api_key)
    if as_json:
        terminal.print_json(report(comparison))
    else:
        console = terminal.out()
        for part in render(comparison):
            console.print(part)
    if request.scores:
        similarities = {model.id: each.score.similarity for model, each in comparison.figures().items()}
        scores.add(
            request.scores, request.task, {id_: score for id_, score in similarities.items() if score is not None}
        )
        terminal.err().print(f"saved scores to {request.scores}", soft_wrap=True)
    return comparison.is_complete


def _run(request: ComparisonRequest, url: str | None, api_key: str | None) -> Comparison:
    request.check()
    files = attachments.sources(request.files)
    expected = labels(request.labels, files) if request.labels else [None] * len(files)
    if request.scores:
        scores.check(request.scores)
    names = list(map(_name, files))
    with (
        terminal.err().status("connecting to the gateway") as status,
        gateway(url, lambda what: status.update(what or "connecting to the gateway"), api_key) as client,
    ):
        task, models = compared_task(client, request), compared_models(client, request)

        def now(number: int, model: ComparedModel) -> None:
            status.update(f"file {number + 1} of {len(files)}: {model}")

        rows = list(trials(client, task, models, files, now))
    return Comparison(request.task, models, names, expected, rows)


def _name(file: Source) -> str:
    return str(file) if isinstance(file, Path | str) else "file"
