"""Follows a run to its end and saves its files."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway.cli.errors import USAGE, Problem
from gateway.cli.live_view import View
from gateway.cli.run import Run
from gateway.client import Artifact, Event, HuggingGPT, HuggingGPTError, Pipeline, Unreachable


@dataclass
class FollowedRun:
    """A run that has ended or awaits approval, with its saved files."""

    run: Run = field(default_factory=Run)
    saved: list[Mapping[str, str]] = field(default_factory=list)
    save_problem: Problem | None = None
    """Why files could not be saved."""
    pipeline: Pipeline | None = None
    """The pipeline that its plan was saved as."""
    pipeline_problem: Problem | None = None
    """Why its plan was not saved as requested."""

    @property
    def status(self) -> int:
        """Exit status of the command."""
        return 0 if self.run.completed or self.run.awaits_approval else 1


def follow(client: HuggingGPT, events: Iterable[Event], run: Run, view: View, *, is_approved: bool = False) -> None:
    """Shows a run until it has ended, or until it awaits approval unless it is approved already."""
    for event in _explaining_disconnects(events, run):
        kind = run.apply(event.content)
        view.show(run, kind, event.task_id)
        if run.awaits_approval and not is_approved and client.get(run.run_id).is_waiting:
            return


def _explaining_disconnects(events: Iterable[Event], run: Run) -> Iterator[Event]:
    """Passes the events on.

    Raises:
        Problem: the gateway is unreachable; the run continues.
    """
    try:
        yield from events
    except Unreachable as error:
        if not run.run_id:
            raise
        remedy = f"the run continues: hugginggpt watch {run.run_id} when the gateway is reachable again"
        raise Problem(error.message, remedy=remedy) from error


def save(client: HuggingGPT, answered: FollowedRun, folder: Path) -> None:
    """Saves the files of a run; stores the reason if that fails."""
    try:
        for content in answered.run.artifacts():
            artifact = Artifact.model_validate(content)
            (path,) = client.save(artifact, folder)
            answered.saved.append({"name": artifact.name, "media_type": artifact.media_type, "path": str(path)})
    except HuggingGPTError as error:
        answered.save_problem = Problem.of(error)
    except OSError as error:
        answered.save_problem = Problem(f"cannot write to {folder}: {error.strerror}", remedy="choose another --out")


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
def cancel_on_interrupt(client: HuggingGPT, run: Run) -> Iterator[None]:
    """Cancels the run on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        with suppress(HuggingGPTError):
            if run.run_id and not run.ended:
                client.cancel(run.run_id)
        raise
