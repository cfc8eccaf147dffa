"""Tools called with the MCP package's client, in both protocol versions."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.mcp import run_progress
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunEnded, RunEvent, TaskPlanned
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.gateway_pb2 import CancelRunRequest, CancelRunResponse
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_PLAN, RUN_STATE_FAILED
from protos.hugginggpt.v1.task_pb2 import Task
from services.common.errors import InvalidRequest
from tests.fakes import ScriptedOrchestrator
from tests.fakes.services import ANSWERED
from tests.support.gateway import GatewayUnderTest, start_gateway
from tests.support.mcp_clients import MODES, opened_client, text_of
from tests.support.openai_clients import task_planned, task_started, task_succeeded

both_forms = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path) as gateway:
        yield gateway


@both_forms
async def test_tool_list_is_small_and_described(gateway: GatewayUnderTest, mode: str) -> None:
    async with opened_client(gateway.http_port, mode=mode) as agent:
        tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
        assert "ask" in (agent.instructions or "") or mode != "legacy"
    lead, runs, others = (
        ["ask", "plan", "run_plan"],
        ["get_run", "list_runs", "cancel_run"],
        ["upload", "tasks", "run_task"],
    )
    assert list(tools) == [*lead, *runs, *others]
    assert all(tool.description and len(tool.description) < 220 and tool.output_schema for tool in tools.values())


async def test_client_without_known_version_negotiates_newest(gateway: GatewayUnderTest) -> None:
    async with opened_client(gateway.http_port, mode="auto") as agent:
        assert agent.protocol_version == "2026-07-28"
    async with opened_client(gateway.http_port, mode="legacy") as agent:
        assert agent.protocol_version == "2025-11-25"


@both_forms
async def test_ask_answers(gateway: GatewayUnderTest, mode: str) -> None:
    async with opened_client(gateway.http_port, mode=mode) as agent:
        result = await agent.call_tool("ask", {"request": "do it", "policy": "local"})
    assert not result.is_error
    assert text_of(result) == "Done."
    assert result.structured_content["state"] == "completed"
    assert result.structured_content["ended"]
    assert gateway.orchestrator.callers[-1].policy == DATA_POLICY_LOCAL


@both_forms
async def test_progress_is_reported_with_heartbeats(
    gateway: GatewayUnderTest, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_progress, "HEARTBEAT_SECONDS", 0.05)
    gateway.orchestrator.script = [RunEvent(task_planned=TaskPlanned(task=Task(id=1, task="captioning")))]
    reports, four_reported = list[tuple[float, str]](), asyncio.Event()

    async def record(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, message or ""))
        if len(reports) >= 4:
            four_reported.set()

    async with opened_client(gateway.http_port, mode=mode) as agent:
        call = asyncio.create_task(agent.call_tool("ask", {"request": "x"}, progress_callback=record))
        await asyncio.wait_for(four_reported.wait(), 10)
        (await gateway.orchestrator.arrivals.get()).send(*ANSWERED)
        assert text_of(await asyncio.wait_for(call, 10)) == "Done."
    assert "1. captioning" in [message for _, message in reports]
    numbers = [number for number, _ in reports]
    assert numbers == sorted(set(numbers))


@both_forms
async def test_timeout_returns_run_id_for_get_run(gateway: GatewayUnderTest, mode: str) -> None:
    gateway.orchestrator.script = []
    async with opened_client(gateway.http_port, mode=mode) as agent:
        first = await agent.call_tool("ask", {"request": "x", "wait_seconds": 0})
        run_id = first.structured_content["run_id"]
        assert not first.is_error
        assert first.structured_content["ended"] is False
        assert run_id in text_of(first)
        assert "get_run" in text_of(first)
        waiting = asyncio.create_task(agent.call_tool("get_run", {"run_id": run_id, "wait_seconds": 30}))
        (await gateway.orchestrator.arrivals.get()).send(*ANSWERED)
        assert text_of(await asyncio.wait_for(waiting, 10)) == "Done."
    assert not gateway.orchestrator.cancelled


class Stoppable(ScriptedOrchestrator):
    """An orchestrator whose runs wait for the test, and that signals cancellation."""

    def __init__(self) -> None:
        super().__init__(())
        self.stopped = asyncio.Event()

    async def CancelRun(self, request: CancelRunRequest, context: object) -> CancelRunResponse:
        self.stopped.set()
        return await super().CancelRun(request, context)


async def test_run_continues_after_cancelled_call_by_default(tmp_path: Path) -> None:
    orchestrator = Stoppable()
    async with (
        start_gateway(tmp_path, orchestrator) as gateway,
        opened_client(gateway.http_port, mode="2026-07-28") as agent,
    ):
        for cancel in (False, True):
            call = asyncio.create_task(agent.call_tool("ask", {"request": "x", "cancel_with_call": cancel}))
            run = await asyncio.wait_for(gateway.orchestrator.arrivals.get(), 10)
            await _wait_until_known(gateway, run.run_id)
            call.cancel()
            await asyncio.wait([call])
            await asyncio.wait_for(run.disconnected.wait(), 10)
        await asyncio.wait_for(orchestrator.stopped.wait(), 10)
    assert orchestrator.cancelled == [run.run_id]


async def _wait_until_known(gateway: GatewayUnderTest, run_id: str) -> None:
    """Waits until the gateway has the run's id: a request passes through the same event loop."""
    response = await gateway.http.get(f"/v1/runs/{run_id}")
    assert response.status_code == 200


@both_forms
async def test_disconnect_cancels_run_with_cancel_with_call(tmp_path: Path, mode: str) -> None:
    orchestrator = Stoppable()
    async with start_gateway(tmp_path, orchestrator) as gateway:
        async with opened_client(gateway.http_port, mode=mode) as agent:
            call = asyncio.create_task(agent.call_tool("ask", {"request": "x", "cancel_with_call": True}))
            run = await asyncio.wait_for(orchestrator.arrivals.get(), 10)
            await _wait_until_known(gateway, run.run_id)
        await asyncio.wait([call])
        assert call.exception()
        await asyncio.wait_for(orchestrator.stopped.wait(), 10)


@both_forms
async def test_stopping_gateway_returns_active_run(tmp_path: Path, mode: str) -> None:
    opening = start_gateway(tmp_path, Stoppable())
    gateway = await opening.__aenter__()
    async with opened_client(gateway.http_port, mode=mode) as agent:
        await agent.list_tools()  # otherwise the client would list them after the result, when the gateway has stopped
        call = asyncio.create_task(agent.call_tool("ask", {"request": "x"}))
        run = await asyncio.wait_for(gateway.orchestrator.arrivals.get(), 10)
        await _wait_until_known(gateway, run.run_id)
        await opening.__aexit__(None, None, None)
        assert run.run_id in text_of(await asyncio.wait_for(call, 10))


async def test_cancel_run_stops_a_run(gateway: GatewayUnderTest) -> None:
    gateway.orchestrator.script = []
    async with opened_client(gateway.http_port) as agent:
        first = await agent.call_tool("ask", {"request": "x", "wait_seconds": 0})
        run_id = first.structured_content["run_id"]
        assert not (await agent.call_tool("cancel_run", {"run_id": run_id})).is_error
    assert gateway.orchestrator.cancelled == [run_id]


@both_forms
async def test_list_runs_shows_runs_with_their_states(gateway: GatewayUnderTest, mode: str) -> None:
    async with opened_client(gateway.http_port, mode=mode) as agent:
        await agent.call_tool("ask", {"request": "first"})
        gateway.orchestrator.script = []
        await agent.call_tool("ask", {"request": "second", "wait_seconds": 0})
        listed = await agent.call_tool("list_runs", {})
        runs = listed.structured_content["runs"]
        assert [(run["run_id"], run["state"], run["request"]) for run in runs] == [
            ("run_2", "running", "second"),
            ("run_1", "completed", "first"),
        ]
        assert [run["ended"] for run in runs] == [False, True]
        assert text_of(listed).splitlines()[1] == "run_1 (completed): first"
        ended = await agent.call_tool("list_runs", {"states": ["completed", "failed"]})
        assert [run["run_id"] for run in ended.structured_content["runs"]] == ["run_1"]


async def test_list_runs_names_the_next_page(gateway: GatewayUnderTest) -> None:
    async with opened_client(gateway.http_port) as agent:
        for request in ("first", "second"):
            await agent.call_tool("ask", {"request": request})
        page = await agent.call_tool("list_runs", {"page_size": 1})
        assert len(page.structured_content["runs"]) == 1
        assert page.structured_content["next_page_token"] in text_of(page)
        assert (await agent.call_tool("list_runs", {"states": ["done"]})).is_error


@both_forms
async def test_heartbeat_reports_the_present_step(
    gateway: GatewayUnderTest, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_progress, "HEARTBEAT_SECONDS", 0.05)
    gateway.orchestrator.script = [task_planned(1, "captioning"), task_started(1), task_succeeded(1)]
    reported = asyncio.Event()

    async def record(progress: float, total: float | None, message: str | None) -> None:
        if message == "The run is running; its task has ended, and its answer or further tasks follow.":
            reported.set()

    async with opened_client(gateway.http_port, mode=mode) as agent:
        call = asyncio.create_task(agent.call_tool("ask", {"request": "x"}, progress_callback=record))
        await asyncio.wait_for(reported.wait(), 10)
        (await gateway.orchestrator.arrivals.get()).send(*ANSWERED)
        await asyncio.wait_for(call, 10)


async def test_plan_tool_does_not_run_tasks(gateway: GatewayUnderTest) -> None:
    async with opened_client(gateway.http_port) as agent:
        result = await agent.call_tool("plan", {"request": "x"})
    assert result.structured_content["plan"] == []
    assert gateway.orchestrator.runs["run_1"].spec.mode == RUN_MODE_PLAN


async def test_conversation_is_continued(gateway: GatewayUnderTest) -> None:
    async with opened_client(gateway.http_port) as agent:
        await agent.call_tool("ask", {"request": "x"})
        await agent.call_tool("ask", {"request": "y", "previous_run_id": "run_1"})
    assert gateway.orchestrator.runs["run_2"].spec.parent_run_id == "run_1"


async def test_failed_run_is_failed_call_with_remedy(gateway: GatewayUnderTest) -> None:
    failure = Failure(reason="UNPLANNABLE", message="no task matches", remedy="add an expert")
    gateway.orchestrator.script = [RunEvent(run_ended=RunEnded(state=RUN_STATE_FAILED, failure=failure))]
    async with opened_client(gateway.http_port) as agent:
        result = await agent.call_tool("ask", {"request": "x"})
    assert result.is_error
    assert "Remedy: add an expert" in text_of(result)


async def test_orchestrator_error_is_reported_with_remedy(tmp_path: Path) -> None:
    error = InvalidRequest("task 1 has no name; task 2 needs task 9", reason="PLAN", remedy="see tasks")
    async with (
        start_gateway(tmp_path, ScriptedOrchestrator(refusal=error)) as gateway,
        opened_client(gateway.http_port) as agent,
    ):
        result = await agent.call_tool("run_plan", {"plan": [{"id": 1, "task": "x", "arguments": {}}]})
    assert result.is_error
    assert text_of(result) == "task 1 has no name; task 2 needs task 9 (PLAN)\nRemedy: see tasks"


@both_forms
async def test_invalid_calls_are_tool_errors(gateway: GatewayUnderTest, mode: str) -> None:
    wrong: list[tuple[str, dict[str, object], str]] = [
        ("ask", {}, "'request' is a required property"),
        ("ask", {"request": "  "}, "the request is empty (EMPTY)"),
        ("ask", {"request": "x", "wait_seconds": 1e9}, "wait_seconds: "),
        ("ask", {"request": "x", "files": ["/etc/passwd"]}, "files[0]: '/etc/passwd' is not a file reference"),
        ("ask", {"request": "x", "files": ["file_0"]}, "files[0]: there is no file file_0"),
        ("ask", {"request": "x", "files": ["http://127.0.0.1:1/x"]}, "files[0]: "),
        ("ask", {"request": "x", "files": ["0" * 64]}, "files[0]: "),
        ("ask", {"request": "x", "unknown": 1}, "unknown"),
        ("run_plan", {"plan": [{"id": 1, "task": "x", "surprise": 1}]}, "plan[0] has an unknown field 'surprise'"),
        ("get_run", {"run_id": "run_9"}, "there is no run run_9"),
        ("get_run", {"run_id": "../x"}, "run_id: "),
        ("run_task", {"task": "juggling", "arguments": {}}, "the task 'juggling' is not available (TASK)"),
        ("juggle", {}, "there is no tool 'juggle' (TOOL)"),
    ]
    route = re.compile(r"\b(?:GET|POST) /")
    async with opened_client(gateway.http_port, mode=mode) as agent:
        for tool, arguments, message in wrong:
            result = await agent.call_tool(tool, arguments)
            assert result.is_error
            assert message in text_of(result)
            assert "Remedy: " in text_of(result)
            assert not route.search(text_of(result))


@both_forms
async def test_long_answer_is_read_as_resource(gateway: GatewayUnderTest, mode: str) -> None:
    whole = "word " * 10_000
    gateway.orchestrator.script = [RunEvent(answer_chunk=AnswerChunk(text=whole)), ANSWERED[-1]]
    async with opened_client(gateway.http_port, mode=mode) as agent:
        result = await agent.call_tool("ask", {"request": "x"})
        assert len(text_of(result)) < 1_000
        read = await agent.read_resource(result.structured_content["answer_uri"])
    assert read.contents[0].text == whole  # type: ignore[union-attr]  # it is text
