"""Removes internal details from runs and events before clients receive them."""

from collections.abc import Iterable, Iterator

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import Run


def make_public(message: Run | RunEvent) -> None:
    """Clears the internal endpoints of all candidates in place."""
    for candidate in _of_run(message) if isinstance(message, Run) else _of_event(message):
        if candidate.endpoints:  # ClearField on an absent candidate would create it
            candidate.ClearField("endpoints")


def _of_run(run: Run) -> Iterator[Candidate]:
    for status in run.tasks:
        yield from (status.candidate, status.result.by)


def _of_event(event: RunEvent) -> Iterable[Candidate]:
    match event.WhichOneof("event"):
        case "task_selected":
            return event.task_selected.candidates
        case "task_started":
            return (event.task_started.by,)
        case "attempt_failed":
            return (event.attempt_failed.by,)
        case "task_ended":
            return (event.task_ended.result.by,)
    return ()
