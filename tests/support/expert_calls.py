"""Expert calls as a run makes them, without a run."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from google.rpc import code_pb2

from protos.hugginggpt.internal.v1.selector_pb2 import Endpoint, SelectedCandidate
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, Caller
from protos.hugginggpt.v1.event_pb2 import NextStep, RunEvent
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_INTERNAL, Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common import call_context
from services.common.channel import connect
from services.common.errors import ServiceError
from services.orchestrator.deadline import Deadline
from services.orchestrator.experts.attempts import RetryBudget, TaskRequest
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.experts.circuit_breaker import FAILURES
from services.orchestrator.experts.client import ExpertClient
from services.orchestrator.experts.replies import Prices

SPEC = standard_tasks()["summarization"]


def candidate(
    *addresses: str | Endpoint, model: str = "model", expert: str = "fake", **fields: Any
) -> SelectedCandidate:
    """A candidate with an internal model at the given addresses."""
    endpoints = [Endpoint(address=each) if isinstance(each, str) else each for each in addresses]
    given: dict[str, Any] = {"location": MODEL_LOCATION_INTERNAL} | fields
    return SelectedCandidate(candidate=Candidate(model_id=model, expert=expert, **given), endpoints=endpoints)


@dataclass
class TaskOutcome:
    """Result of a task, and the events of its attempts."""

    result: TaskResult = field(default_factory=TaskResult)
    events: list[RunEvent] = field(default_factory=list)

    @property
    def event_kinds(self) -> list[str]:
        return [event.WhichOneof("event") or "" for event in self.events]

    @property
    def failed_attempts(self) -> list[tuple[str, str]]:
        """Status code and next step of every failed attempt but the last."""
        failed = [event.attempt_failed for event in self.events if event.HasField("attempt_failed")]
        return [
            (code_pb2.Code.Name(each.failure.code), NextStep.Name(each.next).removeprefix("NEXT_STEP_").lower())
            for each in failed
        ]


def open_circuit(client: ExpertClient, selected: SelectedCandidate, error: ServiceError) -> None:
    """Records so many failed calls that the circuit of the address, or of the model, opens."""
    for _ in range(FAILURES):
        client.health.call_failed(selected.candidate, selected.endpoints[0].address, error, had_full_timeout=True)


async def no_candidates() -> Sequence[SelectedCandidate]:
    return ()


class SimulatedRun:
    """The part of a run that calls experts.

    Args:
        client: calls them.
        run: ID of the run.
        seconds: time limit; None: no limit.
        fields: further fields of its Caller.
    """

    def __init__(self, client: ExpertClient, run: str = "run", *, seconds: float | None = None, **fields: Any) -> None:
        self._client = client
        self._retries = RetryBudget()
        self._deadline = Deadline(math.inf if seconds is None else seconds)
        given: dict[str, Any] = {"tenant": "tenant", "policy": DATA_POLICY_LOCAL} | fields
        self._caller = Caller(run_id=run, **given)

    async def infer(
        self,
        *candidates: SelectedCandidate,
        text: str = "hello",
        reselect: Callable[[], Awaitable[Sequence[SelectedCandidate]]] = no_candidates,
        outcome: TaskOutcome | None = None,
    ) -> TaskOutcome:
        """Executes one task.

        Args:
            candidates: best first.
            text: input text.
            reselect: returns the candidates of a later selection.
            outcome: receives the events as they occur.
        """
        outcome = outcome or TaskOutcome()
        request = InferRequest(task=SPEC.name, inputs={"text": Value(text=text)})
        task = TaskRequest(1, request, SPEC, candidates, outcome.events.append, self._retries, reselect, self._deadline)
        with call_context.use_caller(self._caller):
            outcome.result = await self._client.infer(task)
        return outcome


@asynccontextmanager
async def open_client(selector: str = "127.0.0.1:1", **limits: Any) -> AsyncIterator[ExpertClient]:
    """Opens a client with limits that never apply; the selector's address is used for dormant experts only."""
    given: dict[str, Any] = {"attempt_seconds": 5.0, "overload_seconds": 60.0, "prices": Prices({})}
    given |= {"calls_at_once": 256, "calls_per_expert": 256, "calls_per_run": 256} | limits
    async with (
        connect(selector) as channel,
        CatalogueWatcher(SelectorServiceStub(channel)) as catalogue,
        ExpertClient(catalogue, **given) as client,
    ):
        yield client
