"""Views of an active batch: a progress bar on a terminal, otherwise occasional lines."""

from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.terminal import one_line
from gateway.client import Batch

PROGRESS_LINES = 10
"""Number of progress lines, without those about waiting."""


class View(Protocol):
    """Display of a batch."""

    def busy(self, what: str) -> None:
        """Shows a step that precedes the batch; "" for none."""

    def sent(self, done: int, total: int) -> None:
        """Shows the progress of an upload: items sent and items in total."""

    def started(self, message: str) -> None:
        """Prints a permanent line about the batch that has started."""

    def show(self, batch: Batch) -> None:
        """Shows the present state."""

    def close(self) -> None:
        """Ends the display."""


def view(*, as_json: bool) -> View:
    """A progress bar on a terminal, otherwise lines on standard error; nothing for --json."""
    if as_json:
        return NullView()
    console = terminal.err()
    return BarView(console) if console.is_terminal else LineView(console)


class NullView:
    """Displays nothing."""

    def busy(self, what: str) -> None:
        pass

    def sent(self, done: int, total: int) -> None:
        pass

    def started(self, message: str) -> None:
        pass

    def show(self, batch: Batch) -> None:
        pass

    def close(self) -> None:
        pass


class LineView:
    """Prints a line after every tenth of the items."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tenths = 0
        self._waited_for = ""

    def busy(self, what: str) -> None:
        if what:
            self._print(what)

    def sent(self, done: int, total: int) -> None:
        pass

    def started(self, message: str) -> None:
        self._print(message)

    def show(self, batch: Batch) -> None:
        tenths = PROGRESS_LINES * batch.counts.ended // max(batch.counts.total, 1)
        if tenths != self._tenths or batch.waiting_for != self._waited_for:
            self._print(", ".join((f"{batch.counts.ended} of {batch.counts.total}", *_details(batch))))
        self._tenths, self._waited_for = tenths, batch.waiting_for

    def close(self) -> None:
        pass

    def _print(self, what: str) -> None:
        self._console.print(Text(one_line(what)), soft_wrap=True)


class BarView:
    """Progress bar with rate and remaining time."""

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

    def started(self, message: str) -> None:
        self._progress.console.print(Text(one_line(message)), soft_wrap=True)

    def show(self, batch: Batch) -> None:
        done, total = batch.counts.ended, batch.counts.total
        more = ", ".join(_details(batch))
        self._progress.update(self._task, description=batch.state, completed=done, total=total, more=more)

    def close(self) -> None:
        self._progress.stop()


def _details(batch: Batch) -> list[str]:
    counts = batch.counts
    failed = f"{counts.failed} failed" if counts.failed else ""
    incomplete = f"{counts.incomplete} incomplete" if counts.incomplete else ""
    rate = f"{batch.items_per_second:.3g} items/s" if batch.items_per_second else ""
    left = f"{timedelta(seconds=round(batch.remaining))} left" if batch.remaining and batch.remaining >= 1 else ""
    waiting = f"waiting: {one_line(batch.waiting_for)}" if batch.waiting_for else ""
    return [word for word in (failed, incomplete, rate, left, waiting) if word]
