"""What a person sees while a batch goes on: a bar on a terminal, else a line now and then."""

from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.live_view import one_line
from gateway.client import Batch

LINES = 10
"""In all, but those about waiting."""


class View(Protocol):
    """Follows a batch."""

    def busy(self, what: str) -> None:
        """Before the batch has begun."""

    def sent(self, done: int, total: int) -> None:
        """Items are on their way."""

    def begun(self, told: str) -> None:
        """The batch is there; what is told of it stays."""

    def show(self, batch: Batch) -> None:
        """As it stands."""

    def close(self) -> None:
        """Nothing more will come."""


def view(*, as_json: bool) -> View:
    """A bar on a terminal, lines to standard error elsewhere, nothing for --json."""
    if as_json:
        return Silent()
    console = terminal.err()
    return Bar(console) if console.is_terminal else Lines(console)


class Silent:
    """Shows nothing."""

    def busy(self, what: str) -> None:
        pass

    def sent(self, done: int, total: int) -> None:
        pass

    def begun(self, told: str) -> None:
        pass

    def show(self, batch: Batch) -> None:
        pass

    def close(self) -> None:
        pass


class Lines:
    """A line whenever a tenth more is done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tenths = 0
        self._waited_for = ""

    def busy(self, what: str) -> None:
        if what:
            self._tell(what)

    def sent(self, done: int, total: int) -> None:
        pass

    def begun(self, told: str) -> None:
        self._tell(told)

    def show(self, batch: Batch) -> None:
        tenths = LINES * batch.counts.over // max(batch.counts.total, 1)
        if tenths != self._tenths or batch.waiting_for != self._waited_for:
            self._tell(", ".join((f"{batch.counts.over} of {batch.counts.total}", *_more(batch))))
        self._tenths, self._waited_for = tenths, batch.waiting_for

    def close(self) -> None:
        pass

    def _tell(self, what: str) -> None:
        self._console.print(Text(one_line(what)), soft_wrap=True)


class Bar:
    """A bar that fills, with rate and remaining time."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[more]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, more="")

    def busy(self, what: str) -> None:
        self._progress.start()
        self._progress.update(self._task, description=what, total=None, more="")

    def sent(self, done: int, total: int) -> None:
        self._progress.update(self._task, description="sending", completed=done, total=total)

    def begun(self, told: str) -> None:
        self._progress.console.print(Text(one_line(told)), soft_wrap=True)

    def show(self, batch: Batch) -> None:
        done, total = batch.counts.over, batch.counts.total
        more = ", ".join(_more(batch))
        self._progress.update(self._task, description=batch.state, completed=done, total=total, more=more)

    def close(self) -> None:
        self._progress.stop()


def _more(batch: Batch) -> list[str]:
    counts = batch.counts
    failed = f"{counts.failed} failed" if counts.failed else ""
    incomplete = f"{counts.incomplete} incomplete" if counts.incomplete else ""
    rate = f"{batch.items_per_second:.3g} per second" if batch.items_per_second else ""
    left = f"{timedelta(seconds=round(batch.remaining))} left" if batch.remaining and batch.remaining >= 1 else ""
    waiting = f"waiting: {one_line(batch.waiting_for)}" if batch.waiting_for else ""
    return [word for word in (failed, incomplete, rate, left, waiting) if word]
