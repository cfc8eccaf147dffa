"""Scripted planner, selector, responder and expert for an orchestrator under test, as real gRPC servers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from protos.hugginggpt.internal.v1 import (
    orchestrator_pb2,
    orchestrator_pb2_grpc,
    planner_pb2,
    planner_pb2_grpc,
    responder_pb2,
    responder_pb2_grpc,
    selector_pb2,
    selector_pb2_grpc,
)
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import (
    artifact_pb2,
    caller_pb2,
    event_pb2,
    expert_pb2,
    expert_pb2_grpc,
    model_pb2,
    plan_pb2,
    run_pb2,
    task_pb2,
    usage_pb2,
)
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_COMPOSED, CONTROLLER_EMBEDDED, CONTROLLER_RANK
from services.common import call_context
from services.common.channel import connect
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound
from services.common.server import RunningServer
from services.orchestrator.settings import Settings

Infer = Callable[[expert_pb2.InferRequest], Awaitable[dict[str, artifact_pb2.Value]]]


def text(value: str) -> task_pb2.Argument:
    return task_pb2.Argument(value=artifact_pb2.Value(text=value))


def ref(task_id: int, output: str = "text") -> task_pb2.Argument:
    return task_pb2.Argument(reference=task_pb2.Reference(task_id=task_id, output=output))


def task(task_id: int, name: str = "summarization", **arguments: task_pb2.Argument) -> planner_pb2.PlanEvent:
    return planner_pb2.PlanEvent(
        task=task_pb2.Task(id=task_id, task=name, arguments=arguments or {"text": text("hello")})
    )


def note(kind: plan_pb2.NoteKind.ValueType, text: str) -> planner_pb2.PlanEvent:
    return planner_pb2.PlanEvent(note=plan_pb2.Note(kind=kind, text=text))


END = planner_pb2.PlanEvent(
    end=planner_pb2.PlanEnd(decision=plan_pb2.Decision(controller=CONTROLLER_EMBEDDED, confidence=0.9))
)


async def echo(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
    return {"text": artifact_pb2.Value(text=request.inputs["text"].text + "!")}


@dataclass
class ScriptedPeers:
    """Scripted behaviour of the orchestrator's peers; tests set what they need."""

    plans: list[Callable[[planner_pb2.PlanRequest], AsyncIterator[planner_pb2.PlanEvent]]] = field(default_factory=list)
    infer: dict[str, Infer] = field(default_factory=lambda: {"model": echo})
    planned: list[planner_pb2.PlanRequest] = field(default_factory=list)
    answered: list[responder_pb2.RespondRequest] = field(default_factory=list)
    callers: list[caller_pb2.Caller] = field(default_factory=list)
    candidates: list[selector_pb2.SelectedCandidate] = field(default_factory=list)
    answer: Callable[[], AsyncIterator[str]] | None = None
    select: Callable[[], Awaitable[None]] | None = None
    replacement_tasks: list[planner_pb2.PlanEvent] = field(default_factory=list)
    """Tasks with which the planner replaces failed ones."""
    before_replan_end: Callable[[], Awaitable[None]] | None = None
    """Awaited between the last replacement task and the end of the plan."""
    replanned: list[list[int]] = field(default_factory=list)
    """Failed tasks of each replanning request."""
    unavailable_tasks: set[str] = field(default_factory=set)
    """Tasks that no expert offers any more."""
    selected: list[selector_pb2.SelectRequest] = field(default_factory=list)
    usage: usage_pb2.Usage | None = None
    """Usage that every selection and response reports."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to notify watchers of a changed catalogue."""
    catalogue_watches: int = 0
    """Streams of the catalogue opened so far."""

    def plan(self, *events: planner_pb2.PlanEvent) -> None:
        async def script(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
            for event in events:
                yield event

        self.plans.append(script)


class Planner(planner_pb2_grpc.PlannerServiceServicer):
    def __init__(self, peers: ScriptedPeers) -> None:
        self.peers = peers

    async def Plan(self, request: planner_pb2.PlanRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        self.peers.planned.append(request)
        self.peers.callers.append(call_context.current())
        if request.goal.HasField("check"):
            drafts = request.goal.check.draft.tasks
            if not drafts or not drafts[0].task:
                raise InvalidRequest("task 1 has no name; task 2 needs task 9", reason="PLAN")
            for drafted in request.goal.check.draft.tasks:
                await context.write(planner_pb2.PlanEvent(task=drafted))
            await context.write(END)
            return
        if request.goal.HasField("replan"):
            self.peers.replanned.append(list(request.goal.replan.failed))
            for event in self.peers.replacement_tasks:
                await context.write(event)
            if self.peers.before_replan_end:
                await self.peers.before_replan_end()
            await context.write(END)
            return
        script = self.peers.plans[min(len(self.peers.planned), len(self.peers.plans)) - 1]
        async for event in script(request):
            await context.write(event)


class Selector(selector_pb2_grpc.SelectorServiceServicer):
    def __init__(self, peers: ScriptedPeers) -> None:
        self.peers = peers

    async def Select(self, request: selector_pb2.SelectRequest, context: Any) -> selector_pb2.SelectResponse:
        if self.peers.select:
            await self.peers.select()
        self.peers.selected.append(request)
        if request.task.task not in standard_tasks() or request.task.task in self.peers.unavailable_tasks:
            raise NotFound(f"no expert offers {request.task.task}", reason="TASK", remedy="add an expert")
        pinned = request.task.pinned_model
        if pinned and pinned not in {each.candidate.model_id for each in self.peers.candidates}:
            raise NotFound(f"no expert offers model {pinned}", reason="MODEL", remedy="pin model")
        outside = self.peers.candidates and all(
            each.candidate.location != model_pb2.MODEL_LOCATION_INTERNAL for each in self.peers.candidates
        )
        if outside and not call_context.allows_external_endpoints():
            raise FailedPrecondition("it is offered only outside", reason="POLICY", remedy="allow the policy open")
        return selector_pb2.SelectResponse(
            candidates=self.peers.candidates,
            decision=plan_pb2.Decision(controller=CONTROLLER_RANK, usage=self.peers.usage),
            spec=standard_tasks()[request.task.task],
        )

    async def WatchCatalogue(self, request: selector_pb2.WatchCatalogueRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        self.peers.catalogue_watches += 1
        while True:
            await context.write(selector_pb2.WatchCatalogueResponse(revision="any"))
            await self.peers.changed.wait()
            self.peers.changed.clear()


class Responder(responder_pb2_grpc.ResponderServiceServicer):
    def __init__(self, peers: ScriptedPeers) -> None:
        self.peers = peers

    async def Respond(self, request: responder_pb2.RespondRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        self.peers.answered.append(request)
        if self.peers.answer:
            async for text in self.peers.answer():
                await context.write(responder_pb2.RespondEvent(text=text))
        else:
            await context.write(responder_pb2.RespondEvent(text="so it is"))
        decision = plan_pb2.Decision(controller=CONTROLLER_COMPOSED, usage=self.peers.usage)
        await context.write(responder_pb2.RespondEvent(decision=decision))


class Expert(expert_pb2_grpc.ExpertServiceServicer):
    def __init__(self, peers: ScriptedPeers) -> None:
        self.peers = peers

    async def Infer(self, request: expert_pb2.InferRequest, context: Any) -> expert_pb2.InferResponse:
        outputs = await self.peers.infer[request.model](request)
        return expert_pb2.InferResponse(outputs=outputs, revision="1")


@dataclass
class OrchestratorUnderTest:
    peers: ScriptedPeers
    stub: "orchestrator_pb2_grpc.OrchestratorServiceAsyncStub"
    settings: Settings

    async def run(self, **spec: Any) -> list[event_pb2.RunEvent]:
        request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(**{"request": "do it"} | spec))
        return [event async for event in self.stub.CreateRun(request, timeout=20, metadata=call_context.metadata())]


def registration(add: Any, servicer: Any) -> Callable[[grpc.aio.Server], None]:
    return partial(add, servicer)


def candidate(model: str, address: str) -> selector_pb2.SelectedCandidate:
    """A candidate with an internal model of the scripted expert, at an address."""
    chosen = model_pb2.Candidate(model_id=model, expert="fake", location=model_pb2.MODEL_LOCATION_INTERNAL)
    return selector_pb2.SelectedCandidate(candidate=chosen, endpoints=[selector_pb2.Endpoint(address=address)])


def process_settings(peer_addresses: Mapping[str, str], journal: Path) -> dict[str, str]:
    """Settings of an orchestrator process with scripted peers."""
    return {
        "ORCHESTRATOR_LISTEN": "127.0.0.1:0",
        "ORCHESTRATOR_JOURNAL": str(journal),
        "ARTIFACTS_URL": (journal.parent / "artifacts").as_uri(),
        **{f"ORCHESTRATOR_{name.upper()}": address for name, address in peer_addresses.items() if name != "expert"},
    }


class connected:  # noqa: N801  # used like a function
    """Connects a stub to a running server."""

    def __init__(self, running: RunningServer) -> None:
        self._channel = connect(f"127.0.0.1:{running.port}")

    async def __aenter__(self) -> "orchestrator_pb2_grpc.OrchestratorServiceAsyncStub":
        return orchestrator_pb2_grpc.OrchestratorServiceStub(self._channel)

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()


def event_kinds(events: list[event_pb2.RunEvent]) -> list[str]:
    return [event.WhichOneof("event") or "" for event in events]


def run_ended(events: list[event_pb2.RunEvent]) -> event_pb2.RunEnded:
    return events[-1].run_ended


def task_states(events: list[event_pb2.RunEvent]) -> dict[int, str]:
    return {
        event.task_id: run_pb2.TaskState.Name(event.task_ended.state).removeprefix("TASK_STATE_")
        for event in events
        if event.HasField("task_ended")
    }


async def wait_until_cancelled(inferring: asyncio.Event, cancelled: asyncio.Event) -> dict[str, artifact_pb2.Value]:
    inferring.set()
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.set()
    return {}
