"""Follows a run to its end, saves its files and prints its result."""

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.markdown import Markdown
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.errors import USAGE, Problem
from gateway.cli.live_view import View
from gateway.cli.run_progress import RunProgress
from gateway.cli.terminal import one_line, printable
from gateway.client import Event, HuggingGPT, HuggingGPTError, Pipeline, Run, Unreachable


@dataclass
class FollowedRun:
    """A run that has ended or awaits approval, with its saved files."""

    progress: RunProgress = field(default_factory=RunProgress)
    saved: list[Mapping[str, str]] = field(default_factory=list)
    save_problem: Problem | None = None
    """Why files could not be saved."""
    pipeline: Pipeline | None = None
    """The pipeline that its plan was saved as."""
    pipeline_problem: Problem | None = None
    """Why its plan was not saved as requested."""

    @property
    def run(self) -> Run:
        return self.progress.run

    @property
    def status(self) -> int:
        """Exit status of the command."""
        return 0 if self.run.is_completed or self.run.is_waiting else 1


def follow(
    client: HuggingGPT, events: Iterable[Event], progress: RunProgress, view: View, *, is_approved: bool = False
) -> None:
    """Shows a run until it has ended, or until it awaits approval unless it is approved already."""
    for event in _explaining_disconnects(events, progress):
        progress.apply(event)
        view.show(progress, event.kind, event.task_id)
        if progress.run.is_waiting and not is_approved and client.get(event.run_id).is_waiting:
            return


def _explaining_disconnects(events: Iterable[Event], progress: RunProgress) -> Iterator[Event]:
    """Passes the events on.

    Raises:
        Problem: the gateway is unreachable; the run continues.
    """
    try:
        yield from events
    except Unreachable as error:
        run_id = progress.run.run_id
        if not run_id:
            raise
        remedy = f"the run continues: hugginggpt watch {run_id} when the gateway is reachable again"
        raise Problem(error.message, remedy=remedy) from error


def save(client: HuggingGPT, followed: FollowedRun, folder: Path) -> None:
    """Saves the files of a run; stores the reason if that fails."""
    try:
        for artifact in followed.run.artifacts:
            (path,) = client.save(artifact, folder)
            followed.saved.append({"name": artifact.name, "media_type": artifact.media_type, "path": str(path)})
    except HuggingGPTError as error:
        followed.save_problem = Problem.of(error)
    except OSError as error:
        followed.save_problem = Problem(f"cannot write to {folder}: {error.strerror}", remedy="choose another --out")


def open_folder(folder: Path) -> None:
    """Creates the folder if it is missing; raises Problem if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Problem(
            f"cannot write to {folder}: {error.strerror}", remedy="choose another --out", status=USAGE
        ) from error


@contextmanager
def cancel_on_interrupt(client: HuggingGPT, progress: RunProgress) -> Iterator[None]:
    """Cancels the run on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        with suppress(HuggingGPTError):
            if progress.run.run_id and not progress.run.is_over:
                client.cancel(progress.run.run_id)
        raise


def print_result(followed: FollowedRun, *, as_json: bool) -> None:
    """Prints the answer to standard output, and problems to standard error."""
    run, pipeline = followed.run, followed.pipeline
    if as_json:
        saved = {"pipeline": {"name": pipeline.name, "version": pipeline.version}} if pipeline else {}
        terminal.print_json({**followed.progress.report(followed.saved), **saved})
    else:
        _print_answer(followed)
    console = terminal.err()
    if pipeline and not as_json:
        name = pipeline.name
        console.print(f"saved as {name}, version {pipeline.version}: hugginggpt run {name} --file FILE", soft_wrap=True)
    if run.is_waiting:
        console.print(f"the plan awaits approval: hugginggpt approve {run.run_id}", soft_wrap=True)
    message = run.failure.message if run.failure else ""
    if run.failure and message and (as_json or message not in run.answer):  # the answer usually contains the message
        terminal.print_problem(one_line(f"{run.state}: {message}"), one_line(run.failure.remedy))


def _print_answer(followed: FollowedRun) -> None:
    console = terminal.out()
    text = printable(followed.run.answer)
    if console.is_terminal:
        console.print()
        console.print(Markdown(text))
        console.print()
    elif text:
        sys.stdout.write(text.rstrip("\n") + "\n")
    target = console if console.is_terminal else terminal.err()
    for saved in followed.saved:
        target.print(
            Text.assemble(("saved ", "dim"), saved["path"], (f"  {saved['media_type']}", "dim")), soft_wrap=True
        )
