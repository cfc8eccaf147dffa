"""A run is followed to its end, and what it made is saved."""

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
class Answered:
    """A run that has ended or waits, and the files it left."""

    run: Run = field(default_factory=Run)
    saved: list[Mapping[str, str]] = field(default_factory=list)
    unsaved: Problem | None = None
    """Why there are not more."""
    kept: Pipeline | None = None
    """What its plan is kept as."""
    unkept: Problem | None = None
    """Why it is not, though that was wanted."""

    @property
    def status(self) -> int:
        """What a command exits with."""
        return 0 if self.run.completed or self.run.waits else 1


def follow(house: HuggingGPT, events: Iterable[Event], run: Run, view: View, *, to_the_end: bool = False) -> None:
    """Shows a run as its events tell it, until it has ended; or waits for its approval, unless that was given."""
    for event in _or_gone(events, run):
        kind = run.apply(event.content)
        view.show(run, kind, event.task_id)
        if run.waits and not to_the_end and house.get(run.run_id).is_waiting:
            return


def _or_gone(events: Iterable[Event], run: Run) -> Iterator[Event]:
    """The events.

    Raises:
        Problem: the gateway no longer answers; the run goes on.
    """
    try:
        yield from events
    except Unreachable as error:
        if not run.run_id:
            raise
        again = f"the run goes on: hugginggpt watch {run.run_id} once a gateway answers again"
        raise Problem(error.message, remedy=again) from error


def save(house: HuggingGPT, answered: Answered, folder: Path) -> None:
    """Saves what the run made, as far as that can be."""
    try:
        for made in answered.run.artifacts():
            artifact = Artifact.model_validate(made)
            (path,) = house.save(artifact, folder)
            answered.saved.append({"name": artifact.name, "media_type": artifact.media_type, "path": str(path)})
    except HuggingGPTError as error:
        answered.unsaved = Problem.of(error)
    except OSError as error:
        answered.unsaved = Problem(f"cannot write to {folder}: {error.strerror}", remedy="choose another --out")


def open_folder(folder: Path) -> None:
    """Makes the folder if it is not there; raises Problem if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Problem(
            f"cannot write to {folder}: {error.strerror}", remedy="choose another --out", status=USAGE
        ) from error


@contextmanager
def cancelling(house: HuggingGPT, run: Run) -> Iterator[None]:
    """Ctrl-C cancels the run."""
    try:
        yield
    except KeyboardInterrupt:
        with suppress(HuggingGPTError):
            if run.run_id and not run.ended:
                house.cancel(run.run_id)
        raise
