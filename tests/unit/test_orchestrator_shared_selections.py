"""Selections that items of batches share, and those that each run makes for itself."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from protos.hugginggpt.internal.v1.selector_pb2 import Avoid, SelectedCandidate, SelectRequest, SelectResponse
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunAccepted, RunEvent, TaskPlanned
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_RANK, CONTROLLER_ROUTED, Controller, Decision
from protos.hugginggpt.v1.run_pb2 import BatchPosition
from protos.hugginggpt.v1.task_pb2 import Task
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common import call_context
from services.orchestrator.deadline import Deadline
from services.orchestrator.journal import Journal
from services.orchestrator.runs import selector_client
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.selector_client import CandidateCache, SelectorClient

TASK = Task(id=1, task="summarization")
ITEM = BatchPosition(batch_id="b", index=1)


class CountingSelector:
    """A selector that counts its calls."""

    def __init__(self, controller: "Controller.ValueType" = CONTROLLER_RANK) -> None:
        self.calls = 0
        self._controller = controller

    async def Select(self, request: SelectRequest, **_: Any) -> SelectResponse:
        self.calls += 1
        decision = Decision(controller=self._controller, usage=Usage(input_tokens=7))
        return SelectResponse(candidates=[SelectedCandidate(candidate=Candidate(model_id="m"))], decision=decision)


def client_of(selector: CountingSelector, avoid: Sequence[Avoid] = ()) -> SelectorClient:
    return SelectorClient(cast("Any", selector), lambda: avoid, cast("CandidateCache", None))


async def select(client: SelectorClient, batch: BatchPosition | None = ITEM, tenant: str = "t") -> RunLog:
    """Selects for a new run; returns it."""
    accepted = RunEvent(run_id="r", sequence=1, run_accepted=RunAccepted(batch=batch))
    run = RunLog(cast("Journal", None), "r", 1, Caller(tenant=tenant), [accepted])
    run.emit(RunEvent(task_id=1, task_planned=TaskPlanned(task=TASK)))
    with call_context.use_caller(run.caller):
        await client.select(run, TASK, Deadline(60))
    return run


@pytest.fixture(autouse=True)
def long_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector_client, "SHARED_SECONDS", 3600.0)


async def test_batch_items_share_a_selection() -> None:
    selector = CountingSelector()
    client = client_of(selector)
    runs = [await select(client) for _ in range(3)]
    assert selector.calls == 1
    assert [run.fold.run.tasks[0].candidate.model_id for run in runs] == ["m"] * 3


async def test_usage_of_a_shared_selection_counts_once() -> None:
    client = client_of(CountingSelector())
    runs = [await select(client) for _ in range(3)]
    assert [run.fold.decisions[0].usage.input_tokens for run in runs] == [7, 0, 0]


async def test_run_outside_of_batches_selects_for_itself() -> None:
    selector = CountingSelector()
    client = client_of(selector)
    for _ in range(3):
        await select(client, batch=None)
    assert selector.calls == 3


async def test_selection_that_depends_on_the_run_is_not_shared() -> None:
    selector = CountingSelector(CONTROLLER_ROUTED)
    client = client_of(selector)
    for _ in range(3):
        await select(client)
    assert selector.calls == 3


async def test_selection_is_not_shared_between_tenants() -> None:
    selector = CountingSelector()
    client = client_of(selector)
    for tenant in ("a", "b"):
        await select(client, tenant=tenant)
    assert selector.calls == 2


async def test_selection_is_not_shared_while_a_circuit_is_open() -> None:
    selector, avoid = CountingSelector(), list[Avoid]()
    client = client_of(selector, avoid)
    await select(client)
    avoid.append(Avoid(expert="e"))
    for _ in range(2):
        await select(client)
    assert selector.calls == 3


async def test_selection_is_shared_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector_client, "SHARED_SECONDS", 0.0)
    selector = CountingSelector()
    client = client_of(selector)
    for _ in range(2):
        await select(client)
    assert selector.calls == 2
