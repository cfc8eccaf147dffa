"""hugginggpt ask: a request goes in, a run is followed, an answer and files come out."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.cli import attachments, saving
from gateway.cli.api import Api
from gateway.cli.door import gateway
from gateway.cli.problem import Problem
from gateway.cli.run import Run
from gateway.cli.view import View


@dataclass(frozen=True)
class Question:
    """What is asked, and where the answer's files go."""

    request: str
    files: Sequence[Path]
    out: Path
    url: str | None
    policy: str | None
    mode: str | None
    plan: Path | None
    timeout: float | None
    fresh: bool

    def spec(self) -> dict[str, Any]:
        """As a gateway takes it.

        Raises:
            Problem: it cannot be sent.
        """
        attachments.check_request(self.request, has_plan=self.plan is not None)
        attachments.check_files(self.files)
        saving.open_folder(self.out)
        spec = {
            "request": self.request,
            "plan": attachments.read_plan(self.plan) if self.plan else None,
            "policy": self.policy,
            "inference_mode": self.mode,
            "budget": {"wall_time": self.timeout} if self.timeout else None,
            "bypass_memo": self.fresh or None,
        }
        return {key: value for key, value in spec.items() if value is not None}


@dataclass(frozen=True)
class Answered:
    """A run that has ended, and the files it left."""

    run: Run
    saved: Sequence[Mapping[str, str]]
    unsaved: Problem | None
    """Why there are not more."""


def ask(question: Question, view: View) -> Answered:
    """Asks, follows the run to its end and saves what it made. Ctrl-C cancels the run."""
    spec = question.spec()
    run, saved, unsaved = Run(), list[Mapping[str, str]](), None
    try:
        with gateway(question.url, view.busy) as api, _cancelling(api, run):
            view.busy("planning")
            for event in api.ask(spec, question.files):
                kind = run.apply(event)
                view.show(run, kind, event.get("task_id", 0))
            try:
                saved.extend(_saved(api, artifact, question.out) for artifact in run.artifacts())
            except Problem as problem:
                unsaved = problem
    finally:
        view.close()
    return Answered(run, saved, unsaved)


@contextmanager
def _cancelling(api: Api, run: Run) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        with suppress(Problem):
            if run.run_id and not run.ended:
                api.cancel(run.run_id)
        raise


def _saved(api: Api, artifact: Mapping[str, Any], folder: Path) -> dict[str, str]:
    path = saving.save(api, artifact, folder)
    return {"name": artifact.get("name", ""), "media_type": artifact.get("media_type", ""), "path": str(path)}
