"""The planner's server with a scripted selector."""

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
    """A selector that reports catalogue changes to its watchers."""

    def __init__(self) -> None:
        super().__init__([offered(standard_tasks()[name]) for name in LITE])
        self.watched = asyncio.Event()
        self.list_calls = 0
        self._changed = asyncio.Event()

    def offer(self, spec: task_pb2.TaskSpec) -> None:
        self.tasks.append(offered(spec))
        self.revision += "1"
        self._changed.set()

    async def ListTasks(self, request: gateway_pb2.ListTasksRequest, context: Any) -> gateway_pb2.ListTasksResponse:
        self.list_calls += 1
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
async def serve_planner(selector: ScriptedSelector) -> "AsyncIterator[PlannerServiceAsyncStub]":
    register = partial(selector_pb2_grpc.add_SelectorServiceServicer_to_server, selector)
    service = selector_pb2.DESCRIPTOR.services_by_name["SelectorService"]
    async with (
        serving(register, service) as selector_server,
        planner(Settings(listen="127.0.0.1:0", selector=f"127.0.0.1:{selector_server.port}")) as running,
        connect(f"127.0.0.1:{running.port}") as channel,
    ):
        yield rpc.PlannerServiceStub(channel)


def plan_request(text: str, **fields: Any) -> pb.PlanRequest:
    return pb.PlanRequest(conversation=[run_pb2.Turn(role=run_pb2.ROLE_USER, text=text)], inputs=[SIGN], **fields)


async def events(stub: "PlannerServiceAsyncStub", request: pb.PlanRequest) -> list[pb.PlanEvent]:
    return [event async for event in stub.Plan(request, timeout=10)]


async def plan_error(stub: "PlannerServiceAsyncStub", request: pb.PlanRequest) -> errors.ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await events(stub, request)
    return errors.from_rpc(caught.value)


async def test_tasks_are_streamed_and_followed_by_end_with_decision() -> None:
    async with serve_planner(ScriptedSelector([offered(standard_tasks()[name]) for name in LITE])) as stub:
        *tasks, end = await events(stub, plan_request(READ_ALOUD))
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


async def test_request_that_no_task_fits_yields_unmapped_note() -> None:
    async with serve_planner(ChangingSelector()) as stub:
        note, end = await events(stub, plan_request("Draw a castle"))
    assert note.note.kind == plan_pb2.NOTE_KIND_UNMAPPED
    assert note.note.span == "Draw a castle"
    assert end.HasField("end")


async def test_note_names_failing_expert_of_task(tmp_path: Path) -> None:
    failed = card("painter", "text-to-image", state=model_pb2.MODEL_STATE_FAILED, failure="its weights are missing")
    async with (
        FakeExpert("diffusion", [failed]).serving() as address,
        selector_starter(tmp_path)(experts=address) as selector,
        planner(Settings(listen="127.0.0.1:0", selector=selector.address)) as running,
        connect(f"127.0.0.1:{running.port}") as channel,
    ):
        note, _ = await events(rpc.PlannerServiceStub(channel), plan_request("Draw a castle"))
    assert "text-to-image, which expert diffusion offers, but is failing at the moment" in note.note.text
    assert "`hugginggpt experts`" in note.note.text


async def test_supplied_plan_error_names_failing_expert() -> None:
    selector = ScriptedSelector()
    selector.failing = [offered(standard_tasks()["image-to-text"])]
    task = task_pb2.Task(
        id=1, task="image-to-text", arguments={"image": task_pb2.Argument(input=task_pb2.InputRef(name="file1"))}
    )
    goal = pb.PlanGoal(check=pb.CheckPlan(draft=plan_pb2.Plan(tasks=[task])))
    async with serve_planner(selector) as stub:
        error = await plan_error(stub, plan_request(READ_ALOUD, goal=goal))
    assert "the task image-to-text is offered by lite, but is failing at the moment" in error.message


async def test_continued_plan_does_not_repeat_tasks() -> None:
    async with serve_planner(ChangingSelector()) as stub:
        complete = [event.task for event in await events(stub, plan_request(READ_ALOUD)) if event.HasField("task")]
        prior = [pb.PriorTask(task=task, state=run_pb2.TASK_STATE_SUCCEEDED) for task in complete[:1]]
        goal = pb.PlanGoal(continuation=pb.ContinuePlan())
        rest = await events(stub, plan_request(READ_ALOUD, prior=prior, goal=goal))
    assert [event.task for event in rest if event.HasField("task")] == complete[1:]


async def test_embedded_planner_returns_note_instead_of_replan() -> None:
    async with serve_planner(ChangingSelector()) as stub:
        goal = pb.PlanGoal(replan=pb.Replan(failed=[1]))
        note, end = await events(stub, plan_request(READ_ALOUD, goal=goal))
    assert note.note.kind == plan_pb2.NOTE_KIND_UNMAPPED
    assert end.HasField("end")


async def test_valid_supplied_plan_is_returned_unchanged() -> None:
    task = task_pb2.Task(
        id=1, task="image-to-text", arguments={"image": task_pb2.Argument(input=task_pb2.InputRef(name="file1"))}
    )
    goal = pb.PlanGoal(check=pb.CheckPlan(draft=plan_pb2.Plan(tasks=[task])))
    async with serve_planner(ChangingSelector()) as stub:
        returned, end = await events(stub, plan_request("", goal=goal))
    assert returned.task == task
    assert end.end.decision.controller == CONTROLLER_SUPPLIED


async def test_invalid_supplied_plan_error_names_all_faults() -> None:
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
    async with serve_planner(ChangingSelector()) as stub:
        error = await plan_error(stub, plan_request("", goal=pb.PlanGoal(check=pb.CheckPlan(draft=draft))))
    assert type(error) is errors.InvalidRequest
    assert error.reason == "PLAN"
    for fault in ("telepathy", "there is no input x", "takes one text, not a list", "is given nothing", "parameters"):
        assert fault in error.message


@pytest.mark.parametrize(
    "request_", [pb.PlanRequest(), plan_request(""), plan_request(" \n")], ids=["no turn", "no text", "blank"]
)
async def test_empty_request_is_invalid_with_remedy(request_: pb.PlanRequest) -> None:
    async with serve_planner(ChangingSelector()) as stub:
        error = await plan_error(stub, request_)
    assert type(error) is errors.InvalidRequest
    assert error.reason == "EMPTY"
    assert error.remedy


async def test_new_task_can_be_planned_once_selector_reports_it() -> None:
    port = task_pb2.Port(name="text", modality=artifact_pb2.MODALITY_TEXT, required=True)
    spec = task_pb2.TaskSpec(name="text-reversal", description="Writes backwards.", inputs=[port], outputs=[port])
    selector = ChangingSelector()
    async with serve_planner(selector) as stub:
        (before, _) = await events(stub, plan_request("Please do text-reversal on 'abc'"))
        await asyncio.wait_for(selector.watched.wait(), 5)
        selector.watched.clear()
        selector.offer(spec)
        await asyncio.wait_for(selector.watched.wait(), 5)
        async with asyncio.timeout(5):
            first = before
            while not first.HasField("task"):
                first = (await events(stub, plan_request("Please do text-reversal on 'abc'")))[0]
    assert before.note.kind == plan_pb2.NOTE_KIND_UNMAPPED
    assert first.task.task == "text-reversal"
    assert first.task.arguments["text"].value.text == "abc"


async def test_catalogue_is_not_fetched_again_while_it_is_watched() -> None:
    selector = ChangingSelector()
    async with serve_planner(selector) as stub:
        await asyncio.wait_for(selector.watched.wait(), 5)
        await events(stub, plan_request(READ_ALOUD))
        calls_before = selector.list_calls
        for _ in range(5):
            await events(stub, plan_request(READ_ALOUD))
    assert selector.list_calls == calls_before


async def test_known_catalogue_is_used_while_selector_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.planner.catalog.FRESH_SECONDS", 0)
    monkeypatch.setattr("services.planner.catalog.REFRESH_SECONDS", 0.1)
    async with AsyncExitStack() as stack:
        register = partial(selector_pb2_grpc.add_SelectorServiceServicer_to_server, ChangingSelector())
        selector_server = serving(register, selector_pb2.DESCRIPTOR.services_by_name["SelectorService"])
        address = f"127.0.0.1:{(await selector_server.__aenter__()).port}"
        running = await stack.enter_async_context(planner(Settings(listen="127.0.0.1:0", selector=address)))
        stub = rpc.PlannerServiceStub(await stack.enter_async_context(connect(f"127.0.0.1:{running.port}")))
        before = await events(stub, plan_request(READ_ALOUD))
        await selector_server.__aexit__(None, None, None)
        assert await events(stub, plan_request(READ_ALOUD)) == before


async def test_error_without_catalogue_names_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.planner.catalog.FIRST_SECONDS", 0.2)
    async with (
        planner(Settings(listen="127.0.0.1:0", selector="127.0.0.1:1")) as running,
        connect(f"127.0.0.1:{running.port}") as channel,
    ):
        error = await plan_error(rpc.PlannerServiceStub(channel), plan_request(READ_ALOUD))
    assert type(error) is errors.Unavailable
    assert "selector" in error.message
    assert error.remedy
