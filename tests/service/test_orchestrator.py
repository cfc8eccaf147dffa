"""The orchestrator's server between a scripted planner, selector, responder and expert."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import (
    expert_pb2,
    expert_pb2_grpc,
    orchestrator_pb2,
    orchestrator_pb2_grpc,
    planner_pb2,
    planner_pb2_grpc,
    responder_pb2,
    responder_pb2_grpc,
    selector_pb2,
    selector_pb2_grpc,
)
from protos.hugginggpt.v1 import types_pb2 as types
from services.orchestrator.__main__ import orchestrator
from services.orchestrator.pipeline import SELECTIONS_AT_ONCE
from services.orchestrator.settings import Settings
from services.runtime import caller
from services.runtime.channel import connect
from services.runtime.errors import InvalidRequest, ModelFailed, NotFound, Unavailable
from services.runtime.server import Serving, serving

Infer = Callable[[expert_pb2.InferRequest], Awaitable[dict[str, types.Value]]]


def text(value: str) -> types.Argument:
    return types.Argument(value=types.Value(text=value))


def ref(task_id: int, output: str = "text") -> types.Argument:
    return types.Argument(reference=types.Reference(task_id=task_id, output=output))


def task(task_id: int, name: str = "summarization", **arguments: types.Argument) -> planner_pb2.PlanEvent:
    return planner_pb2.PlanEvent(task=types.Task(id=task_id, task=name, arguments=arguments or {"text": text("hello")}))


def note(kind: types.NoteKind.ValueType, words: str) -> planner_pb2.PlanEvent:
    return planner_pb2.PlanEvent(note=types.Note(kind=kind, text=words))


END = planner_pb2.PlanEvent(end=planner_pb2.PlanEnd(decision=types.Decision(controller="embedded", confidence=0.9)))


async def echo(request: expert_pb2.InferRequest) -> dict[str, types.Value]:
    return {"text": types.Value(text=request.inputs["text"].text + "!")}


@dataclass
class Cast:
    """What the peers of the orchestrator do; each test sets what it needs."""

    plans: list[Callable[[planner_pb2.PlanRequest], AsyncIterator[planner_pb2.PlanEvent]]] = field(default_factory=list)
    infer: dict[str, Infer] = field(default_factory=lambda: {"model": echo})
    planned: list[planner_pb2.PlanRequest] = field(default_factory=list)
    answered: list[responder_pb2.RespondRequest] = field(default_factory=list)
    callers: list[types.Caller] = field(default_factory=list)
    candidates: list[types.Candidate] = field(default_factory=list)
    answer: Callable[[], AsyncIterator[str]] | None = None
    select: Callable[[], Awaitable[None]] | None = None

    def plan(self, *events: planner_pb2.PlanEvent) -> None:
        async def script(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
            for event in events:
                yield event

        self.plans.append(script)


class Planner(planner_pb2_grpc.PlannerServiceServicer):
    def __init__(self, cast: Cast) -> None:
        self.cast = cast

    async def Plan(self, request: planner_pb2.PlanRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        self.cast.planned.append(request)
        self.cast.callers.append(caller.current())
        if request.goal.HasField("check"):
            if not request.goal.check.draft.tasks[0].task:
                raise InvalidRequest("task 1 has no name; task 2 needs task 9", reason="PLAN")
            for drafted in request.goal.check.draft.tasks:
                await context.write(planner_pb2.PlanEvent(task=drafted))
            await context.write(END)
            return
        script = self.cast.plans[min(len(self.cast.planned), len(self.cast.plans)) - 1]
        async for event in script(request):
            await context.write(event)


class Selector(selector_pb2_grpc.SelectorServiceServicer):
    def __init__(self, cast: Cast) -> None:
        self.cast = cast

    async def Select(self, request: selector_pb2.SelectRequest, context: Any) -> selector_pb2.SelectResponse:
        if self.cast.select:
            await self.cast.select()
        if request.task.task not in standard_tasks():
            raise NotFound(f"nobody offers {request.task.task}", reason="TASK", remedy="add an expert")
        return selector_pb2.SelectResponse(
            candidates=self.cast.candidates,
            decision=types.Decision(controller="rank"),
            spec=standard_tasks()[request.task.task],
        )


class Responder(responder_pb2_grpc.ResponderServiceServicer):
    def __init__(self, cast: Cast) -> None:
        self.cast = cast

    async def Respond(self, request: responder_pb2.RespondRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        self.cast.answered.append(request)
        if self.cast.answer:
            async for words in self.cast.answer():
                await context.write(responder_pb2.RespondEvent(text=words))
        else:
            await context.write(responder_pb2.RespondEvent(text="so it is"))
        await context.write(responder_pb2.RespondEvent(decision=types.Decision(controller="composed")))


class Expert(expert_pb2_grpc.ExpertServiceServicer):
    def __init__(self, cast: Cast) -> None:
        self.cast = cast

    async def Infer(self, request: expert_pb2.InferRequest, context: Any) -> expert_pb2.InferResponse:
        outputs = await self.cast.infer[request.model](request)
        return expert_pb2.InferResponse(outputs=outputs, revision="1")


@dataclass
class House:
    cast: Cast
    stub: "orchestrator_pb2_grpc.OrchestratorServiceAsyncStub"
    settings: Settings

    async def run(self, **spec: Any) -> list[types.RunEvent]:
        request = orchestrator_pb2.RunRequest(spec=types.RunSpec(**{"request": "do it"} | spec))
        return [event async for event in self.stub.Run(request, timeout=20, metadata=caller.metadata())]


def registered(add: Any, servicer: Any) -> Callable[[grpc.aio.Server], None]:
    return partial(add, servicer)


@pytest.fixture
async def cast() -> Cast:
    return Cast()


@pytest.fixture
async def peers(cast: Cast) -> AsyncIterator[dict[str, str]]:
    services = {
        "planner": (planner_pb2, "PlannerService", planner_pb2_grpc.add_PlannerServiceServicer_to_server, Planner),
        "selector": (
            selector_pb2,
            "SelectorService",
            selector_pb2_grpc.add_SelectorServiceServicer_to_server,
            Selector,
        ),
        "responder": (
            responder_pb2,
            "ResponderService",
            responder_pb2_grpc.add_ResponderServiceServicer_to_server,
            Responder,
        ),
        "expert": (expert_pb2, "ExpertService", expert_pb2_grpc.add_ExpertServiceServicer_to_server, Expert),
    }
    async with AsyncExitStack() as stack:
        addresses = {}
        for name, (module, service, add, servicer) in services.items():
            running = await stack.enter_async_context(
                serving(registered(add, servicer(cast)), module.DESCRIPTOR.services_by_name[service])
            )
            addresses[name] = f"127.0.0.1:{running.port}"
        cast.candidates.append(candidate("model", addresses["expert"]))
        yield addresses


def candidate(model: str, address: str) -> types.Candidate:
    return types.Candidate(model_id=model, expert="fake", endpoints=[types.Endpoint(address=address)])


@pytest.fixture
def settings(peers: dict[str, str], tmp_path: Path) -> Settings:
    return Settings(
        listen="127.0.0.1:0",
        planner=peers["planner"],
        selector=peers["selector"],
        responder=peers["responder"],
        journal=tmp_path / "journal.sqlite",
        drain_seconds=0,
    )


@pytest.fixture
async def house(cast: Cast, settings: Settings) -> AsyncIterator[House]:
    async with orchestrator(settings) as running, connected(running) as stub:
        yield House(cast, stub, settings)


class connected:  # noqa: N801  # reads as a function
    """A stub to a server that runs."""

    def __init__(self, running: Serving) -> None:
        self._channel = connect(f"127.0.0.1:{running.port}")

    async def __aenter__(self) -> "orchestrator_pb2_grpc.OrchestratorServiceAsyncStub":
        return orchestrator_pb2_grpc.OrchestratorServiceStub(self._channel)

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()


def kinds(events: list[types.RunEvent]) -> list[str]:
    return [event.WhichOneof("event") or "" for event in events]


def ended(events: list[types.RunEvent]) -> types.RunEnded:
    return events[-1].run_ended


def states(events: list[types.RunEvent]) -> dict[int, str]:
    return {
        event.task_id: types.TaskState.Name(event.task_ended.state).removeprefix("TASK_STATE_")
        for event in events
        if event.HasField("task_ended")
    }


async def test_a_request_becomes_tasks_results_and_an_answer(house: House) -> None:
    house.cast.plan(task(1), task(2, text=ref(1)), END)
    events = await house.run()
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert kinds(events)[0] == "run_accepted"
    assert states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    results = {event.task_id: event.task_ended.result for event in events if event.HasField("task_ended")}
    assert results[2].outputs["text"].text == "hello!!"
    assert (results[2].by.model_id, results[2].by.revision, results[2].attempt) == ("model", "1", 1)
    assert len(results[2].input_digest) == 64
    assert ended(events).state == types.RUN_STATE_COMPLETED
    assert "".join(event.answer_chunk.text for event in events) == "so it is"


async def test_a_task_starts_while_the_planner_still_plans(house: House) -> None:
    inferred = asyncio.Event()

    async def slowly(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        yield task(1)
        await inferred.wait()
        yield END

    async def infer(request: expert_pb2.InferRequest) -> dict[str, types.Value]:
        inferred.set()
        return await echo(request)

    house.cast.plans.append(slowly)
    house.cast.infer["model"] = infer
    async with asyncio.timeout(5):
        events = await house.run()
    assert kinds(events).index("task_started") < kinds(events).index("plan_completed")


async def test_independent_tasks_run_side_by_side(house: House) -> None:
    together = asyncio.Barrier(3)

    async def infer(request: expert_pb2.InferRequest) -> dict[str, types.Value]:
        await together.wait()
        return await echo(request)

    house.cast.infer["model"] = infer
    house.cast.plan(task(1), task(2), task(3), END)
    async with asyncio.timeout(5):
        assert ended(await house.run()).state == types.RUN_STATE_COMPLETED


async def test_a_large_plan_does_not_flood_the_selector(house: House) -> None:
    full, planned, there, most = asyncio.Event(), asyncio.Event(), 0, 0

    async def select() -> None:
        nonlocal there, most
        there += 1
        most = max(most, there)
        if there >= SELECTIONS_AT_ONCE:
            full.set()
        await planned.wait()
        there -= 1

    house.cast.select = select
    house.cast.plan(*(task(number) for number in range(1, 401)), END)
    request = orchestrator_pb2.RunRequest(spec=types.RunSpec(request="all of it"))
    async with asyncio.timeout(20):
        async for event in house.stub.Run(request, timeout=20):
            if event.HasField("plan_completed"):
                await full.wait()
                planned.set()
    assert event.run_ended.state == types.RUN_STATE_COMPLETED
    assert most == SELECTIONS_AT_ONCE


async def test_a_failed_task_costs_its_dependents_not_the_answer(house: House) -> None:
    async def infer(request: expert_pb2.InferRequest) -> dict[str, types.Value]:
        if request.inputs["text"].text == "bad":
            raise InvalidRequest("this text is bad", remedy="send a good one", port="text")
        return await echo(request)

    house.cast.infer["model"] = infer
    house.cast.plan(task(1, text=text("bad")), task(2, text=ref(1)), task(3), END)
    events = await house.run()
    assert states(events) == {1: "FAILED", 2: "SKIPPED", 3: "SUCCEEDED"}
    assert ended(events).state == types.RUN_STATE_INCOMPLETE
    assert ended(events).failure == types.Failure(
        reason="INVALID", code="INVALID_ARGUMENT", message="this text is bad", remedy="send a good one", port="text"
    )
    assert "answer_chunk" in kinds(events)


async def test_nothing_usable_is_a_failed_run(house: House) -> None:
    async def infer(_: expert_pb2.InferRequest) -> dict[str, types.Value]:
        raise InvalidRequest("no")

    house.cast.infer["model"] = infer
    house.cast.plan(task(1), END)
    assert ended(await house.run()).state == types.RUN_STATE_FAILED


async def test_the_next_candidate_takes_over_from_a_broken_model(house: House, peers: dict[str, str]) -> None:
    async def broken(_: expert_pb2.InferRequest) -> dict[str, types.Value]:
        raise ModelFailed("nan")

    house.cast.infer = {"broken": broken, "model": echo}
    house.cast.candidates.insert(0, candidate("broken", peers["expert"]))
    house.cast.plan(task(1), END)
    events = await house.run()
    failed = next(event.attempt_failed for event in events if event.HasField("attempt_failed"))
    assert (failed.by.model_id, failed.failure.reason, failed.next) == ("broken", "MODEL_FAILED", "next candidate")
    result = next(event.task_ended.result for event in events if event.HasField("task_ended"))
    assert (result.by.model_id, result.attempt) == ("model", 2)
    assert ended(events).state == types.RUN_STATE_COMPLETED


async def test_an_expert_that_is_away_for_a_moment_is_asked_again(house: House) -> None:
    calls = 0

    async def infer(request: expert_pb2.InferRequest) -> dict[str, types.Value]:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise Unavailable("starting")
        return await echo(request)

    house.cast.infer["model"] = infer
    house.cast.plan(task(1), END)
    events = await house.run()
    assert [event.attempt_failed.next for event in events if event.HasField("attempt_failed")] == ["retry", "retry"]
    assert ended(events).state == types.RUN_STATE_COMPLETED


@pytest.mark.parametrize(
    "outputs",
    [{}, {"txt": types.Value(text="x")}, {"text": types.Value(json="{}")}],
    ids=["missing", "unknown", "wrong kind"],
)
async def test_a_reply_that_breaks_the_ports_is_no_result(house: House, outputs: dict[str, types.Value]) -> None:
    async def infer(_: expert_pb2.InferRequest) -> dict[str, types.Value]:
        return outputs

    house.cast.infer["model"] = infer
    house.cast.plan(task(1), END)
    assert ended(await house.run()).failure.code == "DATA_LOSS"


async def test_a_reference_to_an_output_that_was_not_given_fails_its_task(house: House) -> None:
    house.cast.plan(task(1), task(2, text=ref(1, "sound")), END)
    events = await house.run()
    assert states(events) == {1: "SUCCEEDED", 2: "FAILED"}
    assert "gave no sound" in ended(events).failure.message


async def test_a_task_nobody_offers_fails_with_the_remedy(house: House) -> None:
    house.cast.plan(task(1, "time-travel"), END)
    failure = ended(await house.run()).failure
    assert (failure.code, failure.reason, failure.remedy) == ("NOT_FOUND", "TASK", "add an expert")


@pytest.mark.parametrize(
    ("events", "state", "reason"),
    [
        ([note(types.NOTE_KIND_CHAT, "hi")], types.RUN_STATE_COMPLETED, ""),
        ([note(types.NOTE_KIND_UNMAPPED, "what?")], types.RUN_STATE_FAILED, "UNPLANNABLE"),
        ([note(types.NOTE_KIND_CLARIFY, "which?")], types.RUN_STATE_FAILED, "CLARIFY"),
        ([task(1), note(types.NOTE_KIND_UNMAPPED, "what?")], types.RUN_STATE_INCOMPLETE, "UNPLANNABLE"),
        ([], types.RUN_STATE_FAILED, "UNPLANNABLE"),
    ],
)
async def test_how_a_run_ends_follows_from_the_plan(
    house: House, events: list[planner_pb2.PlanEvent], state: types.RunState.ValueType, reason: str
) -> None:
    house.cast.plan(*events, END)
    ending = ended(await house.run())
    assert (ending.state, ending.failure.reason) == (state, reason)
    assert len(house.cast.answered) == 1


async def test_a_plan_whose_stream_broke_is_continued(house: House) -> None:
    house.cast.plan(task(1))
    house.cast.plan(task(2, text=ref(1)), END)
    events = await house.run()
    assert states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert house.cast.planned[1].goal.HasField("continuation")
    assert [prior.task.id for prior in house.cast.planned[1].prior] == [1]
    assert ended(events).state == types.RUN_STATE_COMPLETED


async def test_a_plan_that_never_ends_well_runs_with_what_there_is(house: House) -> None:
    house.cast.plan(task(1))
    house.cast.plan()
    events = await house.run()
    assert len(house.cast.planned) == 3
    assert states(events) == {1: "SUCCEEDED"}
    assert ended(events).state == types.RUN_STATE_INCOMPLETE


async def test_a_planner_that_refuses_fails_the_run_with_its_reason(house: House) -> None:
    async def refusing(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        raise InvalidRequest("too long", reason="TOO_LONG", remedy="shorten it")
        yield

    house.cast.plans.append(refusing)
    ending = ended(await house.run())
    assert (ending.state, ending.failure.reason) == (types.RUN_STATE_FAILED, "TOO_LONG")
    assert len(house.cast.planned) == 1


async def test_a_supplied_plan_runs_without_planning(house: House) -> None:
    plan = types.Plan(tasks=[task(1).task, task(2, text=ref(1)).task])
    events = await house.run(plan=plan, request="")
    assert states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert [request.goal.WhichOneof("kind") for request in house.cast.planned] == ["check"]
    completed = next(event.plan_completed for event in events if event.HasField("plan_completed"))
    assert completed.decision.controller == "supplied"


async def test_a_supplied_plan_that_is_not_valid_is_refused_before_acceptance(house: House) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await house.run(plan=types.Plan(tasks=[types.Task(id=1)]), request="")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "task 2 needs task 9" in (caught.value.details() or "")


async def test_planning_only_runs_nothing(house: House) -> None:
    house.cast.plan(task(1), END)
    events = await house.run(mode=types.RUN_MODE_PLAN)
    assert kinds(events) == ["run_accepted", "task_planned", "plan_completed", "run_ended"]
    assert ended(events).state == types.RUN_STATE_COMPLETED


async def test_results_only_gives_no_answer(house: House) -> None:
    house.cast.plan(task(1), END)
    events = await house.run(mode=types.RUN_MODE_RESULTS)
    assert "answer_chunk" not in kinds(events)
    assert ended(events).state == types.RUN_STATE_COMPLETED


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"request": "  "}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"inputs": [types.NamedValue(name="a"), types.NamedValue(name="a")]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"mode": types.RUN_MODE_APPROVE}, grpc.StatusCode.UNIMPLEMENTED),
        ({"parent_run_id": "run_unknown"}, grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_what_cannot_be_a_run_is_refused(house: House, spec: dict[str, Any], code: grpc.StatusCode) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await house.run(**spec)
    assert caught.value.code() is code


async def test_a_run_outlives_the_call_that_started_it(house: House) -> None:
    go, inferring = asyncio.Event(), asyncio.Event()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, types.Value]:
        inferring.set()
        await go.wait()
        return await echo(request)

    house.cast.infer["model"] = infer
    house.cast.plan(task(1), END)
    request = orchestrator_pb2.RunRequest(spec=types.RunSpec(request="do it"))
    call = house.stub.Run(request, timeout=20)
    first = await anext(aiter(call))
    await inferring.wait()
    call.cancel()
    go.set()
    watch = house.stub.Watch(orchestrator_pb2.WatchRunRequest(run_id=first.run_id, after_sequence=1), timeout=20)
    events = [event async for event in watch]
    assert events[0].sequence == 2
    assert ended(events).state == types.RUN_STATE_COMPLETED


async def hanging(inferring: asyncio.Event, cancelled: asyncio.Event) -> dict[str, types.Value]:
    inferring.set()
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.set()
    return {}


async def test_cancel_stops_the_expert_and_ends_the_run(house: House) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()
    house.cast.infer["model"] = lambda _: hanging(inferring, cancelled)
    house.cast.plan(task(1), END)
    running = asyncio.create_task(house.run())
    await inferring.wait()
    (run,) = (await house.stub.List(orchestrator_pb2.ListRunsRequest(), timeout=5)).runs
    await house.stub.Cancel(orchestrator_pb2.CancelRunRequest(run_id=run.run_id), timeout=5)
    async with asyncio.timeout(5):
        await cancelled.wait()
        events = await running
    assert states(events) == {1: "CANCELLED"}
    assert ended(events).state == types.RUN_STATE_CANCELLED


async def test_a_run_may_ask_to_end_with_its_call(house: House) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()
    house.cast.infer["model"] = lambda _: hanging(inferring, cancelled)
    house.cast.plan(task(1), END)
    running = asyncio.create_task(house.run(on_disconnect=types.ON_DISCONNECT_CANCEL))
    await inferring.wait()
    running.cancel()
    async with asyncio.timeout(5):
        await cancelled.wait()


async def test_a_deadline_ends_the_run_with_what_there_is(house: House) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, types.Value]:
        if request.inputs["text"].text == "slow":
            return await hanging(inferring, cancelled)
        return await echo(request)

    house.cast.infer["model"] = infer
    house.cast.plan(task(1), task(2, text=text("slow")), END)
    budget = types.Budget()
    budget.wall_time.FromMilliseconds(500)
    events = await house.run(budget=budget)
    assert states(events) == {1: "SUCCEEDED", 2: "FAILED"}
    ending = ended(events)
    assert (ending.state, ending.failure.reason) == (types.RUN_STATE_INCOMPLETE, "DEADLINE")
    assert "answer_chunk" in kinds(events)


async def test_the_same_idempotency_key_gives_the_same_run(house: House) -> None:
    house.cast.plan(task(1), END)
    first = await house.run(idempotency_key="k")
    again = await house.run(idempotency_key="k")
    assert first == again
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await house.run(idempotency_key="k", request="something else")
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_get_shows_the_run_as_its_events_have_it(house: House) -> None:
    house.cast.plan(task(1), END)
    events = await house.run()
    run = await house.stub.Get(orchestrator_pb2.GetRunRequest(run_id=events[0].run_id), timeout=5)
    assert (run.state, run.answer, run.last_sequence) == (types.RUN_STATE_COMPLETED, "so it is", events[-1].sequence)
    assert run.tasks[0].result.outputs["text"].text == "hello!"
    assert not run.HasField("failure")
    assert run.usage.elapsed.ToNanoseconds() > 0


@pytest.mark.parametrize("after", [0, 3, 8, 1000])
async def test_watching_an_ended_run_ends(house: House, after: int) -> None:
    house.cast.plan(task(1), END)
    events = await house.run()
    watch = house.stub.Watch(orchestrator_pb2.WatchRunRequest(run_id=events[0].run_id, after_sequence=after), timeout=5)
    assert [event.sequence async for event in watch] == list(range(after + 1, len(events) + 1))


async def test_runs_are_listed_in_pages_newest_first(house: House) -> None:
    house.cast.plan(END)
    ids = [(await house.run(request=f"run {number}"))[0].run_id for number in range(5)]
    listed, token = [], ""
    for _ in range(3):
        page = await house.stub.List(orchestrator_pb2.ListRunsRequest(page_size=2, page_token=token), timeout=5)
        listed += [run.run_id for run in page.runs]
        token = page.next_page_token
    assert listed == ids[::-1]
    assert token == ""


async def test_a_page_of_negative_size_is_refused(house: House) -> None:
    house.cast.plan(task(1), END)
    await house.run()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await house.stub.List(orchestrator_pb2.ListRunsRequest(page_size=-2), timeout=5)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_another_tenant_sees_nothing(house: House) -> None:
    house.cast.plan(task(1), END)
    run_id = (await house.run())[0].run_id
    with caller.acting_for(types.Caller(tenant="other")):
        who = caller.metadata()
    calls: list[Any] = [
        house.stub.Get(orchestrator_pb2.GetRunRequest(run_id=run_id), timeout=5, metadata=who),
        house.stub.Cancel(orchestrator_pb2.CancelRunRequest(run_id=run_id), timeout=5, metadata=who),
        house.stub.Delete(orchestrator_pb2.DeleteRunRequest(run_id=run_id), timeout=5, metadata=who),
        anext(aiter(house.stub.Watch(orchestrator_pb2.WatchRunRequest(run_id=run_id), timeout=5, metadata=who))),
    ]
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert not (await house.stub.List(orchestrator_pb2.ListRunsRequest(), timeout=5, metadata=who)).runs


async def test_the_caller_travels_with_policy_run_and_deadline(house: House) -> None:
    house.cast.plan(END)
    with caller.acting_for(types.Caller(tenant="acme", policy=types.DATA_POLICY_OPEN)):
        events = await house.run()
    (seen,) = house.cast.callers
    assert (seen.tenant, seen.policy, seen.run_id) == ("acme", types.DATA_POLICY_OPEN, events[0].run_id)
    assert seen.deadline == events[0].run_accepted.deadline


async def test_a_later_turn_sees_the_earlier_one(house: House) -> None:
    house.cast.plan(task(1), END)
    first = await house.run(request="read this")
    second = await house.run(request="and now that", parent_run_id=first[0].run_id)
    assert [turn.text for turn in house.cast.planned[1].conversation] == ["read this", "so it is", "and now that"]
    assert second[0].run_accepted.conversation_id == first[0].run_id


async def test_a_run_whose_orchestrator_died_is_finished_by_another(cast: Cast, settings: Settings) -> None:
    calls: list[str] = []
    hang = asyncio.Event()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, types.Value]:
        calls.append(request.inputs["text"].text)
        if calls == ["hello", "hello!"]:
            hang.set()
            await asyncio.Event().wait()
        return await echo(request)

    cast.infer["model"] = infer
    cast.plan(task(1), task(2, text=ref(1)), END)
    request = orchestrator_pb2.RunRequest(spec=types.RunSpec(request="do it"))
    async with orchestrator(settings) as running, connected(running) as stub:
        call = stub.Run(request, timeout=20)
        run_id = (await anext(aiter(call))).run_id
        await hang.wait()
    async with orchestrator(settings) as running, connected(running) as stub, asyncio.timeout(10):
        watch = stub.Watch(orchestrator_pb2.WatchRunRequest(run_id=run_id), timeout=20)
        events = [event async for event in watch]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert "taken_over" in kinds(events)
    assert calls == ["hello", "hello!", "hello!"]
    assert ended(events).state == types.RUN_STATE_COMPLETED


async def test_a_run_is_watched_and_cancelled_through_another_orchestrator(cast: Cast, settings: Settings) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()
    cast.infer["model"] = lambda _: hanging(inferring, cancelled)
    cast.plan(task(1), END)
    request = orchestrator_pb2.RunRequest(spec=types.RunSpec(request="do it"))
    async with (
        orchestrator(settings) as here,
        connected(here) as mine,
        orchestrator(settings) as there,
        connected(there) as theirs,
        asyncio.timeout(10),
    ):
        call = mine.Run(request, timeout=20)
        run_id = (await anext(aiter(call))).run_id
        await inferring.wait()
        watch = theirs.Watch(orchestrator_pb2.WatchRunRequest(run_id=run_id), timeout=20)
        assert (await anext(aiter(watch))).sequence == 1
        await theirs.Cancel(orchestrator_pb2.CancelRunRequest(run_id=run_id), timeout=5)
        await cancelled.wait()
        events = [event async for event in watch]
    assert ended(events).state == types.RUN_STATE_CANCELLED


async def test_more_runs_than_fit_are_refused_at_once(cast: Cast, settings: Settings) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()
    cast.infer["model"] = lambda _: hanging(inferring, cancelled)
    cast.plan(task(1), END)
    request = orchestrator_pb2.RunRequest(spec=types.RunSpec(request="do it"))
    async with orchestrator(settings.model_copy(update={"max_runs": 1})) as running, connected(running) as stub:
        call = stub.Run(request, timeout=20)
        await anext(aiter(call))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(stub.Run(request, timeout=20)))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
