"""Views of an active run: a live table on a terminal, otherwise one line per step."""

import time
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.run_progress import UNFINISHED_STATES, Decision, RunProgress, TaskProgress, model_of
from gateway.cli.terminal import one_line
from gateway.client import TaskStatus

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
"""Replacements for terminals that support only ASCII."""

PROGRESS_MIN_BYTES = 10_000_000
"""Upload size from which progress is shown."""


class View(Protocol):
    """Display of a run."""

    def busy(self, what: str) -> None:
        """Shows a step that precedes the run; "" for none."""

    def sent(self, done: int, total: int) -> None:
        """Shows the progress of an upload: bytes sent and bytes in total."""

    def show(self, progress: RunProgress, kind: str, task_id: int) -> None:
        """Shows a run after an event of a kind; task_id is 0 for events of the run."""

    def close(self) -> None:
        """Ends the display."""


def view(*, as_json: bool) -> View:
    """A live table on a terminal, otherwise lines on standard error; nothing for --json."""
    if as_json:
        return NullView()
    console = terminal.out()
    return LiveTable(console) if console.is_terminal else LineView(terminal.err())


class NullView:
    """Displays nothing."""

    def busy(self, what: str) -> None:
        pass

    def sent(self, done: int, total: int) -> None:
        pass

    def show(self, progress: RunProgress, kind: str, task_id: int) -> None:
        pass

    def close(self) -> None:
        pass


class LineView:
    """Prints a line for each step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed_notes = 0

    def busy(self, what: str) -> None:
        self._print(what)

    def sent(self, done: int, total: int) -> None:
        if total >= PROGRESS_MIN_BYTES and done == total:
            self._print(f"sent {_megabytes(total)}")

    def show(self, progress: RunProgress, kind: str, task_id: int) -> None:
        status = next((each for each in progress.run.tasks if each.task["id"] == task_id), None)
        if kind in _TASK_TEXTS and status:
            self._print(_TASK_TEXTS[kind](status, progress.of_task(status)), f"{task_id} {status.task['task']}: ")
        elif kind in _RUN_TEXTS:
            self._print(_RUN_TEXTS[kind](progress))
        elif len(progress.notes) > self._printed_notes:
            self._print(progress.notes[-1], "note: ")
        self._printed_notes = len(progress.notes)

    def close(self) -> None:
        pass

    def _print(self, what: str, of: str = "") -> None:
        if what:
            self._console.print(Text(one_line(of + what)), soft_wrap=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f} s"


def _cause(status: TaskStatus) -> str:
    """Why a task has failed or was skipped."""
    failure = status.result.failure if status.result and status.state not in UNFINISHED_STATES else None
    return f"({failure.message or 'no reason given'})" if failure else ""


def _attempt(status: TaskStatus) -> str:
    attempt = status.result.attempt if status.result else 0
    return f"attempt {attempt}" if attempt > 1 else ""


def _join(*parts: str) -> str:
    return " ".join(filter(None, parts))


_TASK_TEXTS: Mapping[str, Callable[[TaskStatus, TaskProgress], str]] = {
    "task_planned": lambda _, __: "planned",
    "task_selected": lambda _, progress: describe_choice(progress.decision),
    "task_waiting": lambda _, progress: f"waiting, {progress.note}",
    "task_started": lambda status, _: _join(f"running on {model_of(status)}", _attempt(status)),
    "attempt_failed": lambda _, progress: progress.note,
    "task_ended": lambda status, progress: _join(status.state, _seconds(progress.seconds), _cause(status)),
}


def _planner_text(progress: RunProgress) -> str:
    if progress.pipeline:
        return f"plan of pipeline {progress.pipeline}" if progress.is_planned else ""
    return describe_planner(progress.decisions.get("plan", {}), llm_planned_first=progress.llm_planned_first)


def _answer_text(progress: RunProgress) -> str:
    return describe_answer_writer(progress.decisions.get("answer", {}))


_RUN_TEXTS: Mapping[str, Callable[[RunProgress], str]] = {"plan_completed": _planner_text, "run_ended": _answer_text}


_COLUMNS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("", "left"),  # mark
    ("dim", "right"),  # id
    ("", "left"),  # task
    ("dim", "left"),  # model
    ("", "right"),  # seconds
)


class LiveTable:
    """A live table with a row per task."""

    def __init__(self, console: Console) -> None:
        self._progress = RunProgress()
        self._what = ""
        self._start_times: dict[int, float] = {}
        self._plain = not console.encoding.startswith("utf")
        self._spinner, self._task_spinner = (Spinner("line" if self._plain else "dots", style="cyan") for _ in range(2))
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=10)

    def busy(self, what: str) -> None:
        self._what = what
        self._live.start()

    def sent(self, done: int, total: int) -> None:
        self._what = f"sending {_megabytes(done)} of {_megabytes(total)}"

    def show(self, progress: RunProgress, kind: str, task_id: int) -> None:
        self._progress = progress
        self._what = "" if progress.run.is_over or progress.is_planned else "planning"
        if kind == "answer_chunk":
            self._what = "" if progress.run.is_over else "answering"
        if kind == "task_started":
            self._start_times.setdefault(task_id, time.monotonic())

    def close(self) -> None:
        self._what = ""
        self._live.stop()

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2, 0, 0))
        for style, justify in _COLUMNS:
            table.add_column(style=style, justify=justify, no_wrap=True, overflow="ellipsis")
        table.add_column(overflow="fold")
        for status in self._progress.run.tasks:
            table.add_row(*self._row(status))
        notes = [Text(one_line(note), style="yellow") for note in self._progress.notes]
        decisions_made = [
            Text(one_line(line), style="dim")
            for line in (_planner_text(self._progress), _answer_text(self._progress))
            if line
        ]
        self._spinner.update(text=Text(self._what, style="dim"))
        return Group(*notes, table, *decisions_made, *([self._spinner] if self._what else []))

    def _row(self, status: TaskStatus) -> list[RenderableType]:
        progress = self._progress.of_task(status)
        note = _join(_attempt(status), describe_choice(progress.decision), progress.note, _cause(status))
        return [
            self._mark(status),
            str(status.task["id"]),
            Text(one_line(status.task["task"]), style="bold"),
            Text(one_line(model_of(status))),
            _seconds(self._elapsed(status, progress)),
            Text(one_line(note), style="red" if status.state == "failed" else "dim"),
        ]

    def _mark(self, status: TaskStatus) -> RenderableType:
        if status.state == "running" and not self._progress.run.is_over:
            return self._task_spinner
        mark, style = MARKS.get(status.state, ("·", "dim"))
        return Text(PLAIN_MARKS[mark] if self._plain else mark, style=style)

    def _elapsed(self, status: TaskStatus, progress: TaskProgress) -> float | None:
        start = self._start_times.get(status.task["id"])
        if progress.seconds is None and status.state == "running" and start is not None:
            return time.monotonic() - start
        return progress.seconds


_PLANNERS = {"llm": "the LLM {}", "embedded": "the embedded planner", "supplied": "the client"}
_WRITERS = {"llm": "written by the LLM {}", "composed": "composed from the results"}
_CHOOSERS = {"llm": "the LLM {}", "rank": "rank", "pinned": "the request", "routed": "the routing table"}


def describe_planner(decision: Decision, *, llm_planned_first: bool = False) -> str:
    """Describes the planner.

    Args:
        decision: decision of the completed plan.
        llm_planned_first: an LLM had planned tasks before the embedded planner took over.
    """
    if not decision.get("controller"):
        return str(decision.get("reason", ""))
    planner = _named(_PLANNERS, decision)
    before = f"first by the LLM {_model(decision)}, then " if llm_planned_first else ""
    return f"planned {before}by {planner}{_reason(decision)}"


def describe_answer_writer(decision: Decision) -> str:
    """Describes what wrote the answer; empty if no LLM was configured for it."""
    return f"answer {_named(_WRITERS, decision)}{_reason(decision)}" if _is_reported(decision) else ""


def describe_choice(decision: Decision) -> str:
    """Describes what chose the model; empty if no LLM was configured for it."""
    return f"chosen by {_named(_CHOOSERS, decision)}{_reason(decision)}" if _is_reported(decision) else ""


def _is_reported(decision: Decision) -> bool:
    return decision.get("controller") == "llm" or bool(decision.get("fell_back_because"))


def _named(names: Mapping[str, str], decision: Decision) -> str:
    controller = decision["controller"]
    return names.get(controller, controller).format(_model(decision))


def _model(decision: Decision) -> str:
    return str(decision.get("llm_model", ""))


def _reason(decision: Decision) -> str:
    because = decision.get("fell_back_because")
    return f": {because}" if because else ""
