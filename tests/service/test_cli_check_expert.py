"""An expert examined as the house would use it: one that keeps its promises, and some that each break one."""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from experts.host.handler import Inputs, Outputs, Parameters
from gateway.cli import app
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from services.common.server import RunningServer, serving
from tests.fakes.broken_experts import (
    Absent,
    Careless,
    Chatty,
    Crowded,
    Disagreeing,
    Failing,
    Formless,
    Hanging,
    Incomplete,
    Leaking,
    Mute,
    Nameless,
    NeverLoaded,
    Other,
    Outside,
    Repeating,
    Rude,
    Silent,
    Sloppy,
    SlowlyLoaded,
    Sound,
    Unhealthy,
    Unreadable,
)
from tests.support.expert_host import SERVING, does, hosts

EXPERT = pb.DESCRIPTOR.services_by_name["ExpertService"]

ROOT = Path(__file__).parents[2]

Checks = dict[str, dict[str, str]]


@pytest.fixture(autouse=True)
def short_timeouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARTIFACTS_URL", tmp_path.as_uri())
    monkeypatch.setattr("gateway.cli.check_expert.check.CONNECT_SECONDS", 1.0)
    monkeypatch.setattr("gateway.cli.check_expert.endurance.CROWD_SECONDS", 5.0)


async def examined(address: str, *options: str) -> tuple[int, Checks]:
    """The exit status, and what was found, by promise."""
    arguments = ["check-expert", address, "--json", "--timeout", "10", *options]
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    found = json.loads(result.stdout)["checks"] if result.stdout else [{"check": "problem", "found": result.stderr}]
    return result.exit_code, {each["check"]: each for each in found}


def slowly(inputs: Inputs, parameters: Parameters) -> Outputs:
    threading.Event().wait(0.02)
    return {"text": inputs["text"]}


async def test_an_expert_of_our_host_keeps_every_promise(tmp_path: Path) -> None:
    async with hosts(tmp_path) as start_host:
        host = await start_host(does(slowly), does(slowly), max_waiting=4)
        await host.until(SERVING)
        status, found = await examined(host.address, "--every-model")
    assert {check: each for check, each in found.items() if each["level"] == "wrong"} == {}
    assert status == 0
    assert {"saying (m)", "saying (other)", "unknown port", "times out of range", "nothing for text"} <= found.keys()
    assert "calls refused" in found["overload"]["found"]
    assert "--pid" in found["drain"]["found"]


async def test_nobody_there_is_said_so() -> None:
    status, found = await examined("127.0.0.1:1")
    assert status == 1
    assert "nobody answers at 127.0.0.1:1" in found["problem"]["found"]


Start = Callable[[Sound], Awaitable[str]]


@pytest.fixture
async def start_host() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def start_host(expert: Sound) -> str:
            def register(server: grpc.aio.Server) -> None:
                rpc.add_ExpertServiceServicer_to_server(expert, server)

            running: RunningServer = await stack.enter_async_context(serving(register, EXPERT))
            await running.set_ready(*expert.names)
            return f"127.0.0.1:{running.port}"

        yield start_host


@pytest.mark.parametrize(
    ("expert", "check", "found"),
    [
        (Repeating, "change counter", "repeats all"),
        (Nameless, "name", "its name is ''"),
        (Disagreeing, "task summarization", "other ports than the standard task"),
        (Unhealthy, "health", "'m' is unknown"),
        (Incomplete, "saying (m)", "output text is missing"),
        (Sloppy, "saying (m)", "output data is not canonical JSON"),
        (Absent, "saying (m)", "not in the artifact store"),
        (Silent, "saying (m)", "trailing metadata has no expert-queue"),
        (Other, "saying (m)", "revision 2, its card says 1"),
        (Failing, "saying (m)", "INTERNAL/MODEL_FAILED"),
        (Sound, "unknown port", "gives an answer"),
        (Crowded, "overload", "INTERNAL/MODEL_FAILED"),
        (Rude, "overload", "RESOURCE_EXHAUSTED/OVERLOADED"),
        (Leaking, "policy of saying (m)", "under the policy local gives an answer"),
        (Careless, "policy of saying (m)", "without a policy gives an answer"),
        (Unreadable, "task saying", "json_schema of its parameter tone"),
        (Formless, "task saying", "port 'thing' has no name or no modality"),
        (Mute, "model m", "does not say why"),
        (Chatty, "progress", "tells of a call it does not know"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_a_promise_that_is_broken_is_named(
    start_host: Start, expert: type[Sound], check: str, found: str
) -> None:
    status, checks = await examined(await start_host(expert()))
    assert status == 1
    assert checks[check]["level"] == "wrong"
    assert found in checks[check]["found"]
    assert checks[check]["remedy"]


async def test_an_expert_without_a_task_that_works_is_not_tried_further(start_host: Start) -> None:
    _, checks = await examined(await start_host(Failing()))
    assert checks["the rest"]["level"] == "not_tried"
    assert "no task could be done" in checks["the rest"]["found"]


async def test_drain_is_not_tried_without_the_process(start_host: Start) -> None:
    _, checks = await examined(await start_host(Sound()))
    assert checks["drain"]["level"] == "not_tried"
    assert "--pid" in checks["drain"]["found"]


async def test_call_that_hangs_is_broken_within_the_limit_of_a_check(start_host: Start) -> None:
    status, checks = await examined(await start_host(Hanging()), "--timeout", "0.3", "--load-timeout", "30")
    assert status == 1
    assert checks["saying (m)"]["level"] == "wrong"
    assert checks["saying (m)"]["found"] == "no answer within 0.3 s"


async def test_model_that_does_not_load_is_broken_within_the_limit_of_loading(start_host: Start) -> None:
    status, checks = await examined(await start_host(NeverLoaded()), "--timeout", "30", "--load-timeout", "0.3")
    assert status == 1
    assert checks["saying (m)"]["found"] == "the model is not loaded within 0.3 s"


async def test_loading_does_not_count_against_the_limit_of_a_check(start_host: Start) -> None:
    expert = SlowlyLoaded(looks=3)
    _, checks = await examined(await start_host(expert), "--timeout", "1", "--load-timeout", "60")
    assert checks["saying (m)"]["level"] == "ok"


async def test_hang_after_loading_is_broken_before_the_limit_of_loading(start_host: Start) -> None:
    expert = SlowlyLoaded(looks=3, answers=False)
    _, checks = await examined(await start_host(expert), "--timeout", "0.3", "--load-timeout", "600")
    assert checks["saying (m)"]["found"] == "no answer within 0.3 s"


async def test_process_that_dies_in_a_call_is_reported_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fakes.dying_expert"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert process.stdout
    try:
        status, checks = await examined((await process.stdout.readline()).decode().strip())
        async with asyncio.timeout(30):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    assert status == 1
    assert checks["saying (m)"]["level"] == "wrong"
    assert "the process died during the call" in checks["saying (m)"]["found"]
    assert checks["the rest"]["level"] == "not_tried"
    assert not any("UNAVAILABLE" in check["found"] for check in checks.values())


async def test_progress_is_shown_on_standard_error(start_host: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.check_expert.progress.SECONDS_BETWEEN_LINES", 0.1)
    arguments = ["check-expert", await start_host(Hanging()), "--json", "--timeout", "1"]
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    assert "saying (m): waiting for" in result.stderr
    json.loads(result.stdout)


async def test_error_codes_are_explained_in_words(start_host: Start) -> None:
    _, checks = await examined(await start_host(Failing()))
    assert checks["saying (m)"]["found"] == "failed inside the expert (INTERNAL/MODEL_FAILED): no"


async def test_what_is_outside_the_house_is_asked_only_if_told_so(start_host: Start) -> None:
    address = await start_host(Outside())
    status, checks = await examined(address)
    assert status == 1  # no task could be tried
    assert checks["policy"]["level"] == "ok"
    assert checks["tasks outside"]["level"] == "not_tried"
    assert "not asked: saying" in checks["tasks outside"]["found"]
    assert "saying (m)" not in checks
    _, checks = await examined(address, "--policy", "open")
    assert checks["saying (m)"]["level"] == "ok"


async def test_what_is_no_expert_is_said_to_be_none() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        _, checks = await examined(f"127.0.0.1:{port}")
    finally:
        await server.stop(None)
    assert "is no expert: it has no hugginggpt.v1.ExpertService" in checks["problem"]["found"]


async def test_an_expert_without_health_and_reflection_is_examined_all_the_same() -> None:
    server = grpc.aio.server()
    rpc.add_ExpertServiceServicer_to_server(Sound(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        _, checks = await examined(f"127.0.0.1:{port}")
    finally:
        await server.stop(None)
    assert (checks["health"]["level"], checks["health"]["found"]) == (
        "wrong",
        "Check of grpc.health.v1: the expert does not implement the method",
    )
    assert checks["reflection"]["level"] == "warning"
    assert checks["saying (m)"]["level"] == "ok"
