"""Scripted services: experts, orchestrator and selector as real gRPC servers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from google.protobuf.duration_pb2 import Duration

from protos.hugginggpt.internal.v1 import orchestrator_pb2, selector_pb2, selector_pb2_grpc
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import expert_pb2, expert_pb2_grpc, gateway_pb2, run_pb2, task_pb2
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunAccepted, RunEnded, RunEvent
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_INTERNAL, MODEL_STATE_READY, ModelCard
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_AWAITING_APPROVAL,
    RUN_STATE_COMPLETED,
    RUN_STATE_RUNNING,
    Run,
    RunSpec,
)
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common import call_context
from services.common.errors import NotFound, ServiceError, Unavailable
from services.common.server import serving
from tests.fakes.infer_only import InferOnlyExpert
from tests.fakes.no_pipelines import NoPipelines

Answer = Callable[[expert_pb2.InferRequest], Awaitable[Mapping[str, Value]]]
"""Function that answers a call; a test delays it by awaiting an event."""


async def echo(request: expert_pb2.InferRequest) -> Mapping[str, Value]:
    """Returns the input text."""
    return {"text": request.inputs["text"]}


def card(model: str, task: str, description: str = "", **fields: Any) -> ModelCard:
    """Card of an internal, loaded model; `fields` override the defaults."""
    defaults: dict[str, Any] = {
        "revision": "1",
        "location": MODEL_LOCATION_INTERNAL,
        "state": MODEL_STATE_READY,
    } | fields
    return ModelCard(id=model, task=task, description=description, **defaults)


class FakeExpert(InferOnlyExpert):
    """An expert whose models are plain functions.

    Args:
        name: Name of the expert; replicas share it.
        cards: Cards of its models.
        specs: Tasks that are not standard, or that differ from the standard.
        answer: Answers the calls of its models.
        scales_to_zero: Whether it may be scaled to zero.
        start_seconds: Reported start duration; 0 for none.
    """

    def __init__(
        self,
        name: str,
        cards: Iterable[ModelCard],
        *,
        specs: Iterable[TaskSpec] = (),
        answer: Answer = echo,
        scales_to_zero: bool = False,
        start_seconds: int = 0,
    ) -> None:
        self.name = name
        self.answer = answer
        self.requests: list[expert_pb2.InferRequest] = []
        self.describe_requests: list[expert_pb2.DescribeRequest] = []
        self._scales_to_zero = scales_to_zero
        self._start_duration = Duration(seconds=start_seconds) if start_seconds else None
        self._own_specs = tuple(specs)
        self._changes = 0
        self.offer(cards)
        self.load = expert_pb2.ExpertLoad(loaded=[card.id for card in self.cards if card.state == MODEL_STATE_READY])

    def offer(self, cards: Iterable[ModelCard]) -> None:
        """Replaces the described models."""
        self.cards = tuple(cards)
        self._changes += 1

    async def Describe(self, request: expert_pb2.DescribeRequest, context: Any) -> expert_pb2.DescribeResponse:
        self.describe_requests.append(request)
        revision = f"{self.name}-{self._changes}"
        if request.known_revision == revision:
            return expert_pb2.DescribeResponse(revision=revision, unchanged=True, load=self.load)
        return expert_pb2.DescribeResponse(
            expert=self.name,
            version="0",
            revision=revision,
            tasks=self._specs(),
            models=self.cards,
            scales_to_zero=self._scales_to_zero,
            start_duration=self._start_duration,
            load=self.load,
        )

    async def Infer(self, request: expert_pb2.InferRequest, context: Any) -> expert_pb2.InferResponse:
        self.requests.append(request)
        if request.model not in {"", *(card.id for card in self.cards)}:
            raise NotFound(f"no model {request.model} is offered", reason="MODEL", remedy="request another")
        outputs = await self.answer(request)
        return expert_pb2.InferResponse(outputs=outputs, revision=request.revision)

    async def Progress(self, request: expert_pb2.ProgressRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        """Sends no progress: calls have no steps."""

    @asynccontextmanager
    async def serving(self, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
        """Serves until the block exits; yields the address."""
        register = partial(expert_pb2_grpc.add_ExpertServiceServicer_to_server, self)
        async with serving(register, expert_pb2.DESCRIPTOR.services_by_name["ExpertService"], listen=listen) as running:
            yield f"{listen.rpartition(':')[0]}:{running.port}"

    def _specs(self) -> Iterable[TaskSpec]:
        own = {spec.name: spec for spec in self._own_specs}
        standard = standard_tasks()
        names = dict.fromkeys((*own, *(card.task for card in self.cards)))
        return [own.get(name) or standard[name] for name in names if name in own or name in standard]


ANSWERED = (
    RunEvent(answer_chunk=AnswerChunk(text="Done.")),
    RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)),
)
"""Events of a successful run."""


class ScriptedRun:
    """A run whose events the test sends."""

    def __init__(self, run_id: str, spec: RunSpec, caller: Caller, conversation_id: str = "") -> None:
        self.run_id = run_id
        self.conversation_id = conversation_id or run_id
        self.spec = spec
        self.caller = caller
        self.events: list[RunEvent] = []
        self.disconnected = asyncio.Event()
        """Set when a client leaves a stream before its end."""
        self._more = asyncio.Event()
        self.send(RunEvent(run_accepted=RunAccepted(spec=spec, conversation_id=self.conversation_id)))

    def send(self, *events: RunEvent) -> None:
        """Numbers events and sends them to all watchers."""
        for event in events:
            numbered = RunEvent(run_id=self.run_id, sequence=len(self.events) + 1)
            numbered.time.GetCurrentTime()
            numbered.MergeFrom(event)
            self.events.append(numbered)
        self._more.set()
        self._more = asyncio.Event()

    @property
    def ended(self) -> bool:
        return self.events[-1].HasField("run_ended")

    async def after(self, sequence: int) -> AsyncIterator[RunEvent]:
        while True:
            more = self._more
            for event in self.events[sequence:]:
                yield event
                sequence = event.sequence
            if self.ended:
                return
            await more.wait()

    def snapshot(self) -> Run:
        last = self.events[-1]
        waits = RUN_STATE_AWAITING_APPROVAL if last.HasField("approval_requested") else RUN_STATE_RUNNING
        state = last.run_ended.state if self.ended else waits
        answer = "".join(event.answer_chunk.text for event in self.events)
        run = Run(run_id=self.run_id, state=state, answer=answer, last_sequence=len(self.events))
        run.spec.CopyFrom(self.spec)
        run.conversation_id = self.conversation_id
        if last.run_ended.HasField("failure"):
            run.failure.CopyFrom(last.run_ended.failure)
        return run

    def to_ended_run(self) -> orchestrator_pb2.EndedRun:
        end = self.events[-1].run_ended
        ended = orchestrator_pb2.EndedRun(run_id=self.run_id, caller=self.caller, state=end.state, usage=end.usage)
        ended.end_time.GetCurrentTime()
        return ended


class ScriptedOrchestrator(NoPipelines):
    """An orchestrator with runs in memory, whose events come from a script.

    Args:
        script: Events of every accepted run; without run_ended the run waits for further events of the test.
        refusal: Error raised instead of accepting a run.
        breaks: Sequence numbers after which a stream breaks, once each.
    """

    def __init__(
        self, script: Sequence[RunEvent] = ANSWERED, *, refusal: ServiceError | None = None, breaks: Iterable[int] = ()
    ) -> None:
        self.script = script
        self.refusal = refusal
        self.breaks = set(breaks)
        self.runs: dict[str, ScriptedRun] = {}
        self.arrivals: asyncio.Queue[ScriptedRun] = asyncio.Queue()
        """Accepted runs in order, as a queue for tests to wait on."""
        self.cancelled: list[str] = []
        self.approved: list[tuple[str, Plan]] = []
        self.callers: list[Caller] = []
        self.holds: dict[str, list[str]] = {}
        """Artifact references by holder."""
        self.ended_batches: list[orchestrator_pb2.EndedBatch] = []

    async def CreateRun(self, request: orchestrator_pb2.CreateRunRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        self.callers.append(call_context.current())
        if self.refusal:
            raise self.refusal
        same = [run for run in self.runs.values() if run.spec.idempotency_key == request.spec.idempotency_key]
        run = same[0] if same else self._accept(request.spec)
        await self._send(run, 0, context)

    async def WatchRun(self, request: gateway_pb2.WatchRunRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        await self._send(self._run(request.run_id), request.after_sequence, context)

    async def GetRun(self, request: gateway_pb2.GetRunRequest, context: Any) -> run_pb2.Run:
        return self._run(request.run_id).snapshot()

    async def ListRuns(self, request: gateway_pb2.ListRunsRequest, context: Any) -> gateway_pb2.ListRunsResponse:
        own = [run for run in reversed(self.runs.values()) if run.caller.tenant == call_context.current().tenant]
        runs = [run.snapshot() for run in own]
        selected = [run for run in runs if not request.states or run.state in request.states]
        if request.first_turns:
            selected = [run for run in selected if not run.spec.parent_run_id]
        if request.conversation_id:
            selected = [run for run in selected if run.conversation_id == request.conversation_id]
        size = request.page_size or len(selected)
        return gateway_pb2.ListRunsResponse(runs=selected[:size], next_page_token="more" if selected[size:] else "")

    async def CancelRun(self, request: gateway_pb2.CancelRunRequest, context: Any) -> gateway_pb2.CancelRunResponse:
        self.cancelled.append(self._run(request.run_id).run_id)
        return gateway_pb2.CancelRunResponse()

    async def ApproveRun(self, request: gateway_pb2.ApproveRunRequest, context: Any) -> gateway_pb2.ApproveRunResponse:
        self.approved.append((self._run(request.run_id).run_id, request.plan))
        return gateway_pb2.ApproveRunResponse()

    async def DeleteRun(self, request: gateway_pb2.DeleteRunRequest, context: Any) -> gateway_pb2.DeleteRunResponse:
        del self.runs[self._run(request.run_id).run_id]
        return gateway_pb2.DeleteRunResponse()

    async def ListEndedRuns(
        self, request: orchestrator_pb2.ListEndedRunsRequest, context: Any
    ) -> orchestrator_pb2.ListEndedRunsResponse:
        ended = [run for run in self.runs.values() if run.ended]
        return orchestrator_pb2.ListEndedRunsResponse(runs=[run.to_ended_run() for run in ended])

    async def ListEndedBatches(
        self, request: orchestrator_pb2.ListEndedBatchesRequest, context: Any
    ) -> orchestrator_pb2.ListEndedBatchesResponse:
        return orchestrator_pb2.ListEndedBatchesResponse(batches=self.ended_batches)

    async def HoldArtifacts(
        self, request: orchestrator_pb2.HoldArtifactsRequest, context: Any
    ) -> orchestrator_pb2.HoldArtifactsResponse:
        self.holds[request.holder] = list(request.sha256s)
        return orchestrator_pb2.HoldArtifactsResponse()

    def _accept(self, spec: RunSpec) -> ScriptedRun:
        parent = self._run(spec.parent_run_id).conversation_id if spec.parent_run_id else ""
        run = ScriptedRun(f"run_{len(self.runs) + 1}", spec, call_context.current(), parent)
        self.runs[run.run_id] = run
        run.send(*self.script)
        self.arrivals.put_nowait(run)
        return run

    def _run(self, run_id: str) -> ScriptedRun:
        if run_id not in self.runs or self.runs[run_id].caller.tenant != call_context.current().tenant:
            raise NotFound(f"there is no run {run_id}", reason="RUN", remedy="list the runs")
        return self.runs[run_id]

    async def _send(self, run: ScriptedRun, after: int, context: Any) -> None:
        ended = False
        try:
            async for event in run.after(after):
                await context.write(event)
                ended = event.HasField("run_ended")
                if event.sequence in self.breaks:
                    self.breaks.remove(event.sequence)
                    raise Unavailable("the run continues in another process", remedy="watch again")
        finally:
            if not ended:
                run.disconnected.set()


class ScriptedSelector(selector_pb2_grpc.SelectorServiceServicer):
    """A selector with a catalogue set by the test.

    Args:
        tasks: Offered tasks.
        cards: Cards of the models.
        experts: Experts that offer them.
    """

    def __init__(
        self,
        tasks: Iterable[task_pb2.CatalogTask] = (),
        cards: Iterable[ModelCard] = (),
        experts: Iterable[selector_pb2.Expert] = (),
    ) -> None:
        self.revision = "1"
        self.tasks = list(tasks)
        self.failing: list[task_pb2.CatalogTask] = []
        """Tasks whose models have all failed."""
        self.cards = list(cards)
        self.experts = list(experts)
        self.forgotten: list[str] = []

    async def Select(self, request: selector_pb2.SelectRequest, context: Any) -> selector_pb2.SelectResponse:
        raise NotFound(f"no expert offers {request.task.task}", reason="TASK", remedy="list the tasks")

    async def WatchCatalogue(self, request: selector_pb2.WatchCatalogueRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        await context.write(selector_pb2.WatchCatalogueResponse(revision=self.revision))

    async def ListTasks(self, request: gateway_pb2.ListTasksRequest, context: Any) -> gateway_pb2.ListTasksResponse:
        if request.known_revision == self.revision:
            return gateway_pb2.ListTasksResponse(revision=self.revision, unchanged=True)
        return gateway_pb2.ListTasksResponse(revision=self.revision, tasks=self.tasks, failing=self.failing)

    async def ListModels(self, request: gateway_pb2.ListModelsRequest, context: Any) -> gateway_pb2.ListModelsResponse:
        cards = [card for card in self.cards if request.task in ("", card.task)]
        size = request.page_size or len(cards)
        more = "more" if cards[size:] else ""
        return gateway_pb2.ListModelsResponse(revision=self.revision, models=cards[:size], next_page_token=more)

    async def ListExperts(
        self, request: selector_pb2.ListExpertsRequest, context: Any
    ) -> selector_pb2.ListExpertsResponse:
        return selector_pb2.ListExpertsResponse(experts=self.experts)

    async def ForgetExpert(
        self, request: selector_pb2.ForgetExpertRequest, context: Any
    ) -> selector_pb2.ForgetExpertResponse:
        if request.name not in {expert.name for expert in self.experts}:
            raise NotFound(f"there is no expert {request.name}", reason="EXPERT", remedy="list the experts")
        self.forgotten.append(request.name)
        return selector_pb2.ForgetExpertResponse()
