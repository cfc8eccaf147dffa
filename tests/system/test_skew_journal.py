"""A journal that the last release left behind, taken up by today's orchestrator."""

import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from obstore.store import LocalStore

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import orchestrator_pb2 as pb
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.types_pb2 import RUN_STATE_COMPLETED, RUN_STATE_RUNNING, TASK_STATE_SUCCEEDED, Value
from services.common.call_context import metadata
from services.common.database import Query, Steps, opened
from services.common.kv_store import Notes
from services.orchestrator.__main__ import orchestrator
from services.orchestrator.journal.tables import MIGRATIONS, SCHEMA
from services.selector.catalog import Catalog
from services.selector.snapshot import KIND, Memory
from tests.service.conftest import among
from tests.support.orchestrator import Cast, connected, kinds
from tests.support.postgres import emptied
from tests.support.previous_release import elder

pytestmark = pytest.mark.slow

RELEASED_SCHEMA = MIGRATIONS[:3]
"""As far as the last release had come."""

JUST_NOW = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
LATER = "2100-01-01T00:00:00Z"
WHO = {"tenant": "default", "policy": "DATA_POLICY_LOCAL", "priority": "PRIORITY_INTERACTIVE", "deadline": LATER}
BY = {"model_id": "model", "expert": "fake", "revision": "1", "reach": "REACH_INTERNAL"}
PLAN = (
    {"id": 1, "task": "summarization", "arguments": {"text": {"value": {"text": "hello"}}}},
    {"id": 2, "task": "summarization", "arguments": {"text": {"reference": {"task_id": 1, "output": "text"}}}},
)


def result(task_id: int, given: str, text: str) -> dict[str, Any]:
    """Of a task, with the digest by which it is known to be made of what was given."""
    call = elder("InferRequest")(task="summarization", inputs={"text": elder("Value")(text=given)})
    return {
        "task_id": task_id,
        "attempt": 1,
        "by": BY,
        "outputs": {"text": {"text": text}},
        "usage": {"elapsed": "0.5s"},
        "input_digest": hashlib.sha256(call.SerializeToString(deterministic=True)).hexdigest(),
    }


DECISION = {"controller": "rank", "reason": "the best of one", "confidence": 0.9}
DONE = {
    "state": "TASK_STATE_SUCCEEDED",
    "result": result(1, "hello", "hello, kept"),
}
HALF: Sequence[dict[str, Any]] = (
    {"run_accepted": {"spec": {"request": "do it"}, "deadline": LATER, "conversation_id": "half"}},
    {"plan_note": {"kind": "NOTE_KIND_TRIMMED", "text": "a bit was left out"}},
    *({"task_id": task["id"], "task_planned": {"task": task}} for task in PLAN),
    {"plan_completed": {"decision": {**DECISION, "controller": "embedded"}, "tasks": 2}},
    {"task_id": 1, "task_selected": {"candidates": [BY], "decision": DECISION}},
    {"task_id": 1, "attempt": 1, "task_started": {"by": BY}},
    {"task_id": 1, "attempt": 1, "task_progress": {"fraction": 0.5, "message": "half"}},
    {"task_id": 1, "attempt": 1, "task_ended": DONE},
)
WHOLE: Sequence[dict[str, Any]] = (
    *HALF,
    {
        "task_id": 2,
        "attempt": 1,
        "attempt_failed": {"failure": {"reason": "OVERLOADED"}, "next": "retry", "delay": "1s"},
    },
    {
        "task_id": 2,
        "attempt": 2,
        "task_ended": {"state": "TASK_STATE_SUCCEEDED", "result": result(2, "hello, kept", "good bye")},
    },
    {"answer_chunk": {"text": "so it was", "decision": {**DECISION, "controller": "composed"}}},
    {"run_ended": {"state": "RUN_STATE_COMPLETED", "usage": {"elapsed": "2s"}}},
)


def left(run_id: str, events: Sequence[dict[str, Any]], state: int, ended: float) -> Steps[None]:
    """A run as the last release wrote it; nobody owns it any more."""
    who = ParseDict(WHO, elder("Caller")()).SerializeToString()
    yield Query(
        "INSERT INTO runs (id, tenant, conversation_id, parent_id, state, request, created, deadline, caller, seq,"
        " owner, fence, lease_until, owner_address, ended) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run_id, "default", run_id, "", state, "do it", time.time(), 4e9, who, len(events), "gone", 1, 0.0, "", ended),
    )
    for number, told in enumerate(events, start=1):
        yield Query(
            "INSERT INTO events (run_id, seq, event, referenced) VALUES (?, ?, ?, 1)",
            (run_id, number, numbered(run_id, number, told).SerializeToString()),
        )


def numbered(run_id: str, number: int, told: dict[str, Any]) -> Any:
    """An event of the last release."""
    return ParseDict({"run_id": run_id, "sequence": number, "time": JUST_NOW, **told}, elder("RunEvent")())


@pytest.fixture(params=["sqlite", "postgres"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of the last release, with a run that has ended and one that was cut off."""
    sqlite = request.param == "sqlite"
    address = str(tmp_path / "journal.sqlite") if sqlite else await emptied(request.getfixturevalue("postgres"))
    async with opened(address, SCHEMA, RELEASED_SCHEMA) as database:
        await database.write(lambda: left("whole", WHOLE, RUN_STATE_COMPLETED, time.time()))
        await database.write(lambda: left("half", HALF, RUN_STATE_RUNNING, 0.0))
    return address


@pytest.fixture
async def runs(journal: str, peers: dict[str, str], tmp_path: Path) -> AsyncIterator[Any]:
    settings = among(peers, tmp_path, journal)
    async with orchestrator(settings) as running, connected(running) as stub:
        yield stub


async def watched(runs: Any, run_id: str) -> list[Any]:
    return [event async for event in runs.Watch(pb.WatchRunRequest(run_id=run_id), timeout=20, metadata=metadata())]


async def test_a_run_that_has_ended_is_read_as_it_was_written(runs: Any) -> None:
    events = await watched(runs, "whole")
    assert [MessageToDict(event) for event in events] == [
        MessageToDict(numbered("whole", number, told)) for number, told in enumerate(WHOLE, start=1)
    ]
    run = await runs.Get(pb.GetRunRequest(run_id="whole"), timeout=5, metadata=metadata())
    assert (run.state, run.answer) == (RUN_STATE_COMPLETED, "so it was")
    assert [(task.state, task.result.outputs["text"].text) for task in run.tasks] == [
        (TASK_STATE_SUCCEEDED, "hello, kept"),
        (TASK_STATE_SUCCEEDED, "good bye"),
    ]
    listed = await runs.List(pb.ListRunsRequest(), timeout=5, metadata=metadata())
    assert "whole" in [each.run_id for each in listed.runs]


async def test_a_run_that_was_cut_off_goes_on_and_does_nothing_twice(cast: Cast, runs: Any) -> None:
    asked: list[str] = []

    async def infer(request: InferRequest) -> dict[str, Value]:
        asked.append(request.inputs["text"].text)
        return {"text": Value(text="good bye")}

    cast.infer["model"] = infer
    events = await watched(runs, "half")
    assert events[-1].run_ended.state == RUN_STATE_COMPLETED
    assert "taken_over" in kinds(events)
    assert asked == ["hello, kept"]
    for event in events:  # after a rollback the last release reads what today's has written
        again = elder("RunEvent").FromString(event.SerializeToString())
        assert again.WhichOneof("event") == event.WhichOneof("event")


async def test_an_expert_that_the_last_release_saw_falling_asleep_sleeps_on(tmp_path: Path) -> None:
    card = {"id": "svd", "task": "text-to-video", "revision": "1", "reach": "REACH_INTERNAL"}
    told = {"expert": "big one", "may_sleep": True, "models": [card], "start_time": "60s"}
    notes = Notes(LocalStore(tmp_path), KIND)
    await notes.put("big one", ParseDict(told, elder("DescribeResponse")()).SerializeToString())
    catalog = Catalog(standard_tasks())
    async with Memory(notes, catalog).running():
        assert catalog.view.tasks["text-to-video"].dormant
