"""The planner as a server, with a selector behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import planner_pb2 as pb
from protos.hugginggpt.internal.v1 import planner_pb2_grpc as rpc
from protos.hugginggpt.internal.v1 import selector_pb2, selector_pb2_grpc
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import artifact_pb2, gateway_pb2, model_pb2, plan_pb2, run_pb2, task_pb2
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_EMBEDDED, CONTROLLER_SUPPLIED
from services.common import errors
from services.common.channel import connect
from services.common.server import serving
from services.planner.__main__ import planner
from services.planner.settings import Settings
from tests.fakes import FakeExpert, ScriptedSelector, card
from tests.support.plans import LITE
from tests.support.selector import selector_starter

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceAsyncStub

SIGN = artifact_pb2.NamedValue(
    name="file1",
    value=artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="ab", media_type="image/png", name="sign.png")),
)
READ_ALOUD = "Read the text in this image aloud and tell me whether it sounds happy"


class ChangingSelector(ScriptedSelector):
    """A selector that tells of changes for as long as it is watched."""

    def __init__(self) -> None:
        super().__init__([offered(standard_tasks()[name]) for name in LITE])
        self.watched = asyncio.Event()
        self.asked = 0
        self._changed = asyncio.Event()

    def offer(self, spec: task_pb2.TaskSpec) -> None:
        self.tasks.append(offered(spec))
        self.revision += "1"
        self._changed.set()

    async def ListTasks(self, request: gateway_pb2.ListTasksRequest, context: Any) -> gateway_pb2.ListTasksResponse:
        self.asked += 1
        return await super().ListTasks(request, context)

    async def WatchCatalogue(self, request: selector_pb2.WatchCatalogueRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        while True:
            self._changed.clear()
            await context.write(selector_pb2.WatchCatalogueResponse(revision=self.revision))
            self.watched.set()
            await self._changed.wait()


def offered(spec: task_pb2.TaskSpec) -> task_pb2.CatalogTask:
    return task_pb2.CatalogTask(spec=spec, experts=["lite"])


@asynccontextmanager
async def opened(selector: ScriptedSelector) -> "AsyncIterator[PlannerServiceAsyncStub]":
    register = partial(selector_pb2_grpc.add_SelectorServiceServicer_to_server, selector)
    service = selector_pb2.DESCRIPTOR.services_by_name["SelectorService"]
    async with (
        serving(register, service) as selecting_at,
        planner(Settings(listen="127.0.0.1:0", selector=f"127.0.0.1:{selecting_at.port}")) as running,
        connect(f"127.0.0.1:{running.port}") as channel,
    ):
        yield rpc.PlannerServiceStub(channel)


def asked(words: str, **fields: Any) -> pb.PlanRequest:
    return pb.PlanRequest(conversation=[run_pb2.Turn(role=run_pb2.ROLE_USER, text=words)], inputs=[SIGN], **fields)


async def events(planning: "PlannerServiceAsyncStub", request: pb.PlanRequest) -> list[pb.PlanEvent]:
    return [event async for event in planning.Plan(request, timeout=10)]


async def refused(planning: "PlannerServiceAsyncStub", request: pb.PlanRequest) -> errors.ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await events(planning, request)
    return errors.from_rpc(caught.value)


async def test_a_request_is_planned_task_by_task_and_the_plan_comes_to_an_end() -> None:
    async with opened(ScriptedSelector([offered(standard_tasks()[name]) for name in LITE])) as planning:
        *tasks, end = await events(planning, asked(READ_ALOUD))
    ocr, aloud, mood = (event.task for event in tasks)
    assert ocr.id == 1
    assert ocr.task == "image-to-text"
    assert ocr.arguments["image"].input.name == "file1"
    assert [(task.task, task.arguments["text"].reference.task_id) for task in (aloud, mood)] == [
        ("text-to-speech", 1),
        ("text-classification", 1),
    ]
    assert mood.source == "tell me whether it sounds happy"
    assert end.end.decision.controller == CONTROLLER_EMBEDDED
    assert end.end.decision.confidence > 0.5


async def test_what_cannot_be_planned_is_a_note() -> None:
    async with opened(ChangingSelector()) as planning:
        note, end = await events(planning, asked("Draw a castle"))
    assert note.note.kind == plan_pb2.NOTE_KIND_UNMAPPED
    assert note.note.span == "Draw a castle"
    assert end.HasField("end")


async def test_a_task_whose_expert_is_failing_is_not_called_unoffered(tmp_path: Path) -> None:
    failed = card("painter", "text-to-image", state=model_pb2.MODEL_STATE_FAILED, failure="it broke off")
    async with (
        FakeExpert("diffusion", [failed]).serving() as address,
        selector_starter(tmp_path)(experts=address) as room,
        planner(Settings(listen="127.0.0.1:0", selector=room.address)) as running,
        connect(f"127.0.0.1:{running.port}") as channel,
    ):
        note, _ = await events(rpc.PlannerServiceStub(channel), asked("Draw a castle"))
    assert "text-to-image, which expert diffusion offers, but is failing at the moment" in note.note.text
    assert "`hugginggpt experts`" in note.note.text


async def test_a_supplied_plan_is_told_that_an_expert_is_failing() -> None:
    selector = ScriptedSelector()
    selector.failing = [offered(standard_tasks()["image-to-text"])]
    task = task_pb2.Task(
        id=1, task="image-to-text", arguments={"image": task_pb2.Argument(input=task_pb2.InputRef(name="file1"))}
    )
    goal = pb.PlanGoal(check=pb.CheckPlan(draft=plan_pb2.Plan(tasks=[task])))
    async with opened(selector) as planning:
        error = await refused(planning, asked(READ_ALOUD, goal=goal))
    assert "the task image-to-text is offered by lite, but is failing at the moment" in error.message


async def test_a_broken_plan_is_continued_without_repeating_a_task() -> None:
    async with opened(ChangingSelector()) as planning:
        whole = [event.task for event in await events(planning, asked(READ_ALOUD)) if event.HasField("task")]
        prior = [pb.PriorTask(task=task, state=run_pb2.TASK_STATE_SUCCEEDED) for task in whole[:1]]
        goal = pb.PlanGoal(continuation=pb.ContinuePlan())
        rest = await events(planning, asked(READ_ALOUD, prior=prior, goal=goal))
    assert [event.task for event in rest if event.HasField("task")] == whole[1:]


async def test_another_way_is_not_made_up() -> None:
    async with opened(ChangingSelector()) as planning:
        goal = pb.PlanGoal(replan=pb.Replan(failed=[1]))
        note, end = await events(planning, asked(READ_ALOUD, goal=goal))
    assert note.note.kind == plan_pb2.NOTE_KIND_UNMAPPED
    assert end.HasField("end")


async def test_a_supplied_plan_is_checked_and_given_back() -> None:
    task = task_pb2.Task(
        id=1, task="image-to-text", arguments={"image": task_pb2.Argument(input=task_pb2.InputRef(name="file1"))}
    )
    goal = pb.PlanGoal(check=pb.CheckPlan(draft=plan_pb2.Plan(tasks=[task])))
    async with opened(ChangingSelector()) as planning:
        given, end = await events(planning, asked("", goal=goal))
    assert given.task == task
    assert end.end.decision.controller == CONTROLLER_SUPPLIED


async def test_a_supplied_plan_with_faults_is_refused_with_all_of_them() -> None:
    nested = task_pb2.Argument(list=task_pb2.ArgumentList(items=[task_pb2.Argument(list=task_pb2.ArgumentList())]))
    draft = plan_pb2.Plan(
        tasks=[
            task_pb2.Task(id=1, task="telepathy"),
            task_pb2.Task(
                id=2, task="image-to-text", arguments={"image": task_pb2.Argument(input=task_pb2.InputRef(name="x"))}
            ),
            task_pb2.Task(id=3, task="summarization", arguments={"text": nested}, parameters_json="["),
        ]
    )
    async with opened(ChangingSelector()) as planning:
        error = await refused(planning, asked("", goal=pb.PlanGoal(check=pb.CheckPlan(draft=draft))))
    assert type(error) is errors.InvalidRequest
    assert error.reason == "PLAN"
    for fault in ("telepathy", "there is no input x", "takes one text, not a list", "is given nothing", "parameters"):
        assert fault in error.message


@pytest.mark.parametrize("request_", [pb.PlanRequest(), asked(""), asked(" \n")], ids=["nothing", "no words", "blank"])
async def test_an_empty_request_is_refused_with_a_remedy(request_: pb.PlanRequest) -> None:
    async with opened(ChangingSelector()) as planning:
        error = await refused(planning, request_)
    assert type(error) is errors.InvalidRequest
    assert error.reason == "EMPTY"
    assert error.remedy


async def test_a_new_kind_of_task_is_plannable_as_soon_as_the_selector_tells_of_it() -> None:
    port = task_pb2.Port(name="text", modality=artifact_pb2.MODALITY_TEXT, required=True)
    spec = task_pb2.TaskSpec(name="text-reversal", description="Writes backwards.", inputs=[port], outputs=[port])
    selector = ChangingSelector()
    async with opened(selector) as planning:
        (before, _) = await events(planning, asked("Please do text-reversal on 'abc'"))
        await asyncio.wait_for(selector.watched.wait(), 5)
        selector.watched.clear()
        selector.offer(spec)
        await asyncio.wait_for(selector.watched.wait(), 5)
        async with asyncio.timeout(5):
            first = before
            while not first.HasField("task"):
                first = (await events(planning, asked("Please do text-reversal on 'abc'")))[0]
    assert before.note.kind == plan_pb2.NOTE_KIND_UNMAPPED
    assert first.task.task == "text-reversal"
    assert first.task.arguments["text"].value.text == "abc"


async def test_planning_asks_nobody_while_changes_are_told() -> None:
    selector = ChangingSelector()
    async with opened(selector) as planning:
        await asyncio.wait_for(selector.watched.wait(), 5)
        await events(planning, asked(READ_ALOUD))
        asked_before = selector.asked
        for _ in range(5):
            await events(planning, asked(READ_ALOUD))
    assert selector.asked == asked_before


async def test_what_is_known_is_planned_with_while_the_selector_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.planner.catalog.FRESH_SECONDS", 0)
    monkeypatch.setattr("services.planner.catalog.REFRESH_SECONDS", 0.1)
    async with AsyncExitStack() as stack:
        register = partial(selector_pb2_grpc.add_SelectorServiceServicer_to_server, ChangingSelector())
        selecting_at = serving(register, selector_pb2.DESCRIPTOR.services_by_name["SelectorService"])
        address = f"127.0.0.1:{(await selecting_at.__aenter__()).port}"
        running = await stack.enter_async_context(planner(Settings(listen="127.0.0.1:0", selector=address)))
        planning = rpc.PlannerServiceStub(await stack.enter_async_context(connect(f"127.0.0.1:{running.port}")))
        before = await events(planning, asked(READ_ALOUD))
        await selecting_at.__aexit__(None, None, None)
        assert await events(planning, asked(READ_ALOUD)) == before


async def test_without_a_catalogue_it_says_that_the_selector_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.planner.catalog.FIRST_SECONDS", 0.2)
    async with (
        planner(Settings(listen="127.0.0.1:0", selector="127.0.0.1:1")) as running,
        connect(f"127.0.0.1:{running.port}") as channel,
    ):
        error = await refused(rpc.PlannerServiceStub(channel), asked(READ_ALOUD))
    assert type(error) is errors.Unavailable
    assert "selector" in error.message
    assert error.remedy
