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
from gateway.cli.run import Decision, Run, Task
from gateway.cli.terminal import one_line

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

    def show(self, run: Run, kind: str, task_id: int) -> None:
        """Shows the run after an event of a kind; task_id is 0 for events of the run."""

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

    def show(self, run: Run, kind: str, task_id: int) -> None:
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

    def show(self, run: Run, kind: str, task_id: int) -> None:
        if kind in _TASK_TEXTS:
            task = run.tasks[task_id]
            self._print(_TASK_TEXTS[kind](task), f"{task.id} {task.task}: ")
        elif kind in _RUN_TEXTS:
            self._print(_RUN_TEXTS[kind](run))
        elif len(run.notes) > self._printed_notes:
            self._print(run.notes[-1], "note: ")
        self._printed_notes = len(run.notes)

    def close(self) -> None:
        pass

    def _print(self, what: str, of: str = "") -> None:
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


_TASK_TEXTS: Mapping[str, Callable[[Task], str]] = {
    "task_planned": lambda _: "planned",
    "task_selected": lambda task: describe_choice(task.decision),
    "task_waiting": lambda task: f"waiting, {task.note}",
    "task_started": lambda task: " ".join(filter(None, (f"running on {task.model}", _attempt(task)))),
    "attempt_failed": lambda task: task.note,
    "task_ended": lambda task: " ".join(filter(None, (task.state, _seconds(task.seconds), _cause(task)))),
}


def _planner_text(run: Run) -> str:
    if run.pipeline:
        return f"plan of pipeline {run.pipeline}"
    return describe_planner(run.decisions.get("plan", {}), llm_planned_first=run.llm_planned_first)


def _answer_text(run: Run) -> str:
    return describe_answer_writer(run.decisions.get("answer", {}))


_RUN_TEXTS: Mapping[str, Callable[[Run], str]] = {"plan_completed": _planner_text, "run_ended": _answer_text}


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
        self._run = Run()
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

    def show(self, run: Run, kind: str, task_id: int) -> None:
        self._run = run
        self._what = "" if run.ended or run.planned else "planning"
        if kind == "answer_chunk":
            self._what = "" if run.ended else "answering"
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
        for task in list(self._run.tasks.values()):
            table.add_row(*self._row(task))
        notes = [Text(one_line(note), style="yellow") for note in self._run.notes]
        decisions_made = [
            Text(one_line(line), style="dim") for line in (_planner_text(self._run), _answer_text(self._run)) if line
        ]
        self._spinner.update(text=Text(self._what, style="dim"))
        return Group(*notes, table, *decisions_made, *([self._spinner] if self._what else []))

    def _row(self, task: Task) -> list[RenderableType]:
        note = " ".join(filter(None, (_attempt(task), describe_choice(task.decision), task.note, _cause(task))))
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
            return self._task_spinner
        mark, style = MARKS.get(task.state, ("·", "dim"))
        return Text(PLAIN_MARKS[mark] if self._plain else mark, style=style)

    def _elapsed(self, task: Task) -> float | None:
        if task.seconds is None and task.state == "running" and task.id in self._start_times:
            return time.monotonic() - self._start_times[task.id]
        return task.seconds


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
