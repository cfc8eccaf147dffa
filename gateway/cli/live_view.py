"""What a person sees while a run goes on: a live table on a terminal, else a line for each step."""

import time
import unicodedata
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gateway.cli import decisions
from gateway.cli.run import Run, Task

MARKS = {
    "planned": ("·", "dim"),
    "waiting": ("…", "yellow"),
    "succeeded": ("✓", "green"),
    "reused": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
    "cancelled": ("–", "yellow"),
}
PLAIN_MARKS = {"·": ".", "…": ".", "✓": "+", "✗": "x", "–": "-"}
"""For terminals that know no more than ASCII."""

_TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""What letters are that turn the direction of those behind them."""

WORTH_TELLING = 10_000_000
"""Bytes, from which on sending them takes a while."""


class View(Protocol):
    """Follows a run."""

    def busy(self, what: str) -> None:
        """Before the run has begun."""

    def sent(self, done: int, total: int) -> None:
        """Files are on their way: bytes sent, and all there are."""

    def show(self, run: Run, kind: str, task_id: int) -> None:
        """After an event of a kind, about a task or (0) the run."""

    def close(self) -> None:
        """Nothing more will come."""


def printable(text: str) -> str:
    """Without control characters and turned directions: what a terminal would obey, a model or a file may have said."""
    return "".join(letter for letter in text if letter in "\n\t" or not _obeyed(letter))


def one_line(text: str) -> str:
    """What something is called, or said to be: printable, without letters that do not show, and never a line more."""
    line = " ".join(text.expandtabs(1).splitlines())
    return "".join(letter for letter in line if unicodedata.category(letter) not in ("Cc", "Cf"))


def _obeyed(letter: str) -> bool:
    return unicodedata.category(letter) == "Cc" or unicodedata.bidirectional(letter) in _TURNING


class Silent:
    """Shows nothing."""

    def busy(self, what: str) -> None:
        pass

    def sent(self, done: int, total: int) -> None:
        pass

    def show(self, run: Run, kind: str, task_id: int) -> None:
        pass

    def close(self) -> None:
        pass


class Lines:
    """A line for each step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._noted = 0

    def busy(self, what: str) -> None:
        self._tell(what)

    def sent(self, done: int, total: int) -> None:
        if total >= WORTH_TELLING and done == total:
            self._tell(f"sent {_megabytes(total)}")

    def show(self, run: Run, kind: str, task_id: int) -> None:
        if kind in _SAID_OF_TASKS:
            task = run.tasks[task_id]
            self._tell(_SAID_OF_TASKS[kind](task), f"{task.id} {task.task}: ")
        elif kind in _SAID_OF_ALL:
            self._tell(_SAID_OF_ALL[kind](run))
        elif len(run.notes) > self._noted:
            self._tell(run.notes[-1], "note: ")
        self._noted = len(run.notes)

    def close(self) -> None:
        pass

    def _tell(self, what: str, of: str = "") -> None:
        if what:
            self._console.print(Text(one_line(of + what)), soft_wrap=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f} s"


def _cause(task: Task) -> str:
    return "" if task.error is None else f"({task.error.get('message', 'no reason given')})"


def _attempt(task: Task) -> str:
    return f"attempt {task.attempt}" if task.attempt > 1 else ""


_SAID_OF_TASKS: Mapping[str, Callable[[Task], str]] = {
    "task_planned": lambda _: "planned",
    "task_selected": lambda task: decisions.of_choice(task.decision),
    "task_waiting": lambda task: f"waiting, {task.note}",
    "task_started": lambda task: " ".join(filter(None, (f"running on {task.model}", _attempt(task)))),
    "attempt_failed": lambda task: task.note,
    "task_ended": lambda task: " ".join(filter(None, (task.state, _seconds(task.seconds), _cause(task)))),
}


def _plan(run: Run) -> str:
    if run.pipeline:
        return f"planned before: {run.pipeline}"
    return decisions.of_plan(run.decisions.get("plan", {}), begun=run.begun)


def _answer(run: Run) -> str:
    return decisions.of_answer(run.decisions.get("answer", {}))


_SAID_OF_ALL: Mapping[str, Callable[[Run], str]] = {"plan_completed": _plan, "run_ended": _answer}


_COLUMNS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("", "left"),  # mark
    ("dim", "right"),  # id
    ("", "left"),  # task
    ("dim", "left"),  # model
    ("", "right"),  # seconds
)


class Picture:
    """A table that moves: one row for each task."""

    def __init__(self, console: Console) -> None:
        self._run = Run()
        self._what = ""
        self._began: dict[int, float] = {}
        self._plain = not console.encoding.startswith("utf")
        self._spinner, self._turning = (Spinner("line" if self._plain else "dots", style="cyan") for _ in range(2))
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=10)

    def busy(self, what: str) -> None:
        self._what = what
        self._live.start()

    def sent(self, done: int, total: int) -> None:
        self._what = f"sending {_megabytes(done)} of {_megabytes(total)}"

    def show(self, run: Run, kind: str, task_id: int) -> None:
        self._run = run
        self._what = "" if run.ended or run.planned else "planning"
        if kind == "answer_chunk":
            self._what = "" if run.ended else "answering"
        if kind == "task_started":
            self._began.setdefault(task_id, time.monotonic())

    def close(self) -> None:
        self._what = ""
        self._live.stop()

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2, 0, 0))
        for style, justify in _COLUMNS:
            table.add_column(style=style, justify=justify, no_wrap=True, overflow="ellipsis")
        table.add_column(overflow="fold")
        for task in list(self._run.tasks.values()):
            table.add_row(*self._row(task))
        notes = [Text(one_line(note), style="yellow") for note in self._run.notes]
        deciders = [Text(one_line(line), style="dim") for line in (_plan(self._run), _answer(self._run)) if line]
        self._spinner.update(text=Text(self._what, style="dim"))
        return Group(*notes, table, *deciders, *([self._spinner] if self._what else []))

    def _row(self, task: Task) -> list[RenderableType]:
        note = " ".join(filter(None, (_attempt(task), decisions.of_choice(task.decision), task.note, _cause(task))))
        return [
            self._mark(task),
            str(task.id),
            Text(one_line(task.task), style="bold"),
            Text(one_line(task.model or "")),
            _seconds(self._elapsed(task)),
            Text(one_line(note), style="red" if task.state == "failed" else "dim"),
        ]

    def _mark(self, task: Task) -> RenderableType:
        if task.state == "running" and not self._run.ended:
            return self._turning
        mark, style = MARKS.get(task.state, ("·", "dim"))
        return Text(PLAIN_MARKS[mark] if self._plain else mark, style=style)

    def _elapsed(self, task: Task) -> float | None:
        if task.seconds is None and task.state == "running" and task.id in self._began:
            return time.monotonic() - self._began[task.id]
        return task.seconds
