"""The Run object that the client folds from events, compared with the orchestrator's fold."""

import json

import pytest

from gateway.client import Event, Run
from gateway.client.run_fold import RunFold
from gateway.json_decoder import decode
from gateway.json_encoder import encode
from protos.hugginggpt import run_state
from protos.hugginggpt.v1.event_pb2 import RunEvent
from tests.support.event_logs import NAMES, event_log, folded_run, run_file


@pytest.mark.parametrize("name", NAMES)
def test_run_is_that_of_the_orchestrator_after_every_event(name: str) -> None:
    folded, expected = RunFold(), run_state.RunFold()
    for event in event_log(name):
        folded.apply(event)
        expected.apply(decode(RunEvent, event.content))
        assert folded.run == Run.model_validate(encode(expected.snapshot()))


@pytest.mark.parametrize("name", NAMES)
def test_recorded_run_object_is_that_of_the_orchestrator(name: str) -> None:
    """`python -m tests.support.event_logs` writes the files."""
    assert json.loads(run_file(name).read_text("utf-8")) == folded_run(name)


def test_event_of_unknown_kind_advances_only_the_sequence_number() -> None:
    fold = RunFold()
    (first, *_) = event_log("completed")
    fold.apply(first)
    before = fold.run
    fold.apply(Event.of({"run_id": first.run_id, "sequence": 2, "task_id": 7, "task_moved": {}}))
    assert fold.run == before.model_copy(update={"last_sequence": 2})


def test_event_of_unplanned_task_is_ignored() -> None:
    fold = RunFold()
    fold.apply(Event.of({"run_id": "r", "sequence": 1, "task_id": 7, "task_waiting": {"reason": "expert starts"}}))
    assert fold.run.tasks == ()
