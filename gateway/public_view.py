"""What of a run is told outside: all but the addresses of the servers inside."""

from collections.abc import Iterable, Iterator

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import Run


def make_public(told: Run | RunEvent) -> None:
    """Takes the addresses out."""
    for candidate in _of_run(told) if isinstance(told, Run) else _of_event(told):
        if candidate.endpoints:  # an absent candidate stays absent
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
