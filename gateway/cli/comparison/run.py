"""hugginggpt compare, from what was asked to what is told."""

from pathlib import Path

from gateway.cli import attachments, terminal
from gateway.cli.comparison import scores
from gateway.cli.comparison.labels import labels
from gateway.cli.comparison.report import Comparison, drawn, report
from gateway.cli.comparison.request import Wanted, contestants, exercise
from gateway.cli.comparison.trials import Contestant, trials
from gateway.cli.connect import gateway
from gateway.client import Source


def compare(wanted: Wanted, url: str | None, api_key: str | None, *, as_json: bool) -> bool:
    """Compares, tells what came of it and saves scores; whether every model answered for every file."""
    made = _compared(wanted, url, api_key)
    if as_json:
        terminal.tell_json(report(made))
    else:
        console = terminal.out()
        for part in drawn(made):
            console.print(part)
    if wanted.scores:
        found = {model.id: each.score.likeness for model, each in made.figures().items()}
        scores.add(wanted.scores, wanted.task, {id_: score for id_, score in found.items() if score is not None})
        terminal.err().print(f"scores saved in {wanted.scores}", soft_wrap=True)
    return made.is_complete


def _compared(wanted: Wanted, url: str | None, api_key: str | None) -> Comparison:
    wanted.check()
    files = attachments.sources(wanted.files)
    told = labels(wanted.labels, files) if wanted.labels else [None] * len(files)
    if wanted.scores:
        scores.check(wanted.scores)
    names = list(map(_name, files))
    with (
        terminal.err().status("looking") as status,
        gateway(url, lambda what: status.update(what or "looking"), api_key) as house,
    ):
        what, models = exercise(house, wanted), contestants(house, wanted)

        def now(number: int, model: Contestant) -> None:
            status.update(f"file {number + 1} of {len(files)}: {model}")

        rows = list(trials(house, what, models, files, now))
    return Comparison(wanted.task, models, names, told, rows)


def _name(file: Source) -> str:
    return str(file) if isinstance(file, Path | str) else "file"
