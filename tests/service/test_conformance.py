"""Conformance checks, and the command check-expert, against a correct expert and experts that each violate one rule.

The checks run in the test's event loop, next to the expert's server: two loops that both use grpc.aio in one process
lose events. Tests of the command itself run it in a separate process.
"""

import asyncio
import io
import json
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha import reflection, reflection_pb2
from rich.console import Console

from experts.host.handler import Inputs, Outputs, Parameters
from gateway.cli.check_expert import Progress
from gateway.conformance.check import CheckRequest, Report, check
from gateway.conformance.findings import Finding, Level
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from services.common.errors import Unavailable, Unimplemented
from services.common.reflection import SERVICES
from services.common.server import RunningServer, serving
from tests.fakes.broken_experts import (
    AcceptsEmptyBatch,
    AcceptsInvalidItems,
    ArtifactNotStored,
    AssumesOpenPolicy,
    BatchWithoutTrailers,
    DropsFailedItems,
    ExternalModel,
    FailedWithoutReason,
    FailsEveryCall,
    FailsUnderLoad,
    IgnoresPolicy,
    IgnoresPolicyOfBatches,
    InvalidItemFailsBatch,
    InvalidParameterSchema,
    MinimalExpert,
    NeverAnswers,
    NeverLoaded,
    NonCanonicalJson,
    OffersBatches,
    OmitsRequiredOutput,
    OtherPortsThanStandard,
    OtherRevision,
    PortWithoutModality,
    RepeatsDescription,
    ReportsUnknownCalls,
    SlowlyLoaded,
    WithoutModelHealth,
    WithoutName,
    WithoutRetryDelay,
    WithoutTrailers,
)
from tests.support.expert_host import SERVING, hosts, loader_of

EXPERT = pb.DESCRIPTOR.services_by_name["ExpertService"]

ROOT = Path(__file__).parents[2]

COMMAND_SECONDS = 60.0

Checks = dict[str, Finding]


@pytest.fixture(autouse=True)
def artifact_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARTIFACTS_URL", tmp_path.as_uri())
    monkeypatch.setattr("gateway.conformance.check.CONNECT_SECONDS", 1.0)
    monkeypatch.setattr("gateway.conformance.calls.OVERLOAD_SECONDS", 5.0)


async def report_on(
    address: str, *, seconds: float = 10.0, load_seconds: float = 300.0, **options: bool
) -> tuple[Report, Checks]:
    """Checks an expert.

    Returns:
        The report, and its findings by check.
    """
    request = CheckRequest(address, seconds=seconds, load_seconds=load_seconds, **options)
    report = await check(request, lambda _: None)
    return report, {finding.check: finding for finding in report.findings}


@dataclass(frozen=True)
class CommandResult:
    status: int
    stdout: str
    stderr: str


async def run_command(address: str, *options: str) -> CommandResult:
    """Runs hugginggpt check-expert in a separate process."""
    command = [sys.executable, "-m", "gateway.cli", "check-expert", address, *options]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT
    )
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return CommandResult(process.returncode, stdout.decode(), stderr.decode())


StartExpert = Callable[[MinimalExpert], Awaitable[str]]


@pytest.fixture
async def start_expert() -> AsyncIterator[StartExpert]:
    async with AsyncExitStack() as stack:

        async def start(expert: MinimalExpert) -> str:
            add = partial(rpc.add_ExpertServiceServicer_to_server, expert)
            running: RunningServer = await stack.enter_async_context(serving(add, EXPERT))
            await running.set_ready(*expert.names)
            return f"127.0.0.1:{running.port}"

        yield start


def slow_echo(inputs: Inputs, parameters: Parameters) -> Outputs:
    threading.Event().wait(0.02)
    return {"text": inputs["text"]}


async def test_expert_of_the_host_passes_all_checks(tmp_path: Path) -> None:
    async with hosts(tmp_path) as start:
        host = await start(loader_of(slow_echo), loader_of(slow_echo), max_waiting=4)
        await host.until(SERVING)
        report, checks = await report_on(host.address, every_model=True)
    assert [finding for finding in report.findings if finding.level is Level.WRONG] == []
    assert report.is_ok
    expected = {"saying (m)", "saying (other)", "unknown port", "times out of range", "empty value for text"}
    assert expected <= checks.keys()
    assert checks["batch"].level is Level.OK
    assert "calls refused" in checks["overload"].found
    assert "--pid" in checks["drain"].found


async def test_address_without_server_is_an_error() -> None:
    with pytest.raises(Unavailable) as raised:
        await report_on("127.0.0.1:1")
    assert raised.value.message == "cannot connect to 127.0.0.1:1"
    assert "python -m experts.host" in raised.value.remedy


@pytest.mark.parametrize(
    ("expert", "check_name", "found"),
    [
        (RepeatsDescription, "change counter", "repeats the whole description"),
        (WithoutName, "name", "the expert's name is ''"),
        (OtherPortsThanStandard, "task summarization", "its ports differ from the standard task"),
        (WithoutModelHealth, "health", "'m' is unknown"),
        (OmitsRequiredOutput, "saying (m)", "output text is missing"),
        (NonCanonicalJson, "saying (m)", "output data is not canonical JSON"),
        (ArtifactNotStored, "saying (m)", "not in the artifact store"),
        (WithoutTrailers, "saying (m)", "the trailing metadata lacks expert-queue"),
        (OtherRevision, "saying (m)", "the reply is from revision 2, the card has 1"),
        (FailsEveryCall, "saying (m)", "INTERNAL/MODEL_FAILED"),
        (MinimalExpert, "unknown port", "the call succeeds"),
        (FailsUnderLoad, "overload", "INTERNAL/MODEL_FAILED"),
        (WithoutRetryDelay, "overload", "RESOURCE_EXHAUSTED/OVERLOADED"),
        (IgnoresPolicy, "policy of saying (m)", "a call with the policy local: the call succeeds"),
        (AssumesOpenPolicy, "policy of saying (m)", "a call without a policy: the call succeeds"),
        (InvalidParameterSchema, "task saying", "json_schema of parameter tone"),
        (PortWithoutModality, "task saying", "port 'thing' has no name or no modality"),
        (FailedWithoutReason, "model m", "the card's failure is empty"),
        (ReportsUnknownCalls, "progress", "the stream has events of an unknown call"),
        (InvalidItemFailsBatch, "batch", "a call with one invalid item of three: refused as invalid"),
        (DropsFailedItems, "batch", "2 results for 3 items"),
        (AcceptsInvalidItems, "batch", "an item with an unknown port: no failure"),
        (AcceptsEmptyBatch, "batch", "a call without items succeeds"),
        (BatchWithoutTrailers, "batch", "the trailing metadata lacks expert-queue"),
        (IgnoresPolicyOfBatches, "policy of saying (m)", "a call with the policy local by InferBatch is not refused"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_violation_is_reported_with_a_remedy(
    start_expert: StartExpert, expert: type[MinimalExpert], check_name: str, found: str
) -> None:
    report, checks = await report_on(await start_expert(expert()))
    assert not report.is_ok
    assert checks[check_name].level is Level.WRONG
    assert found in checks[check_name].found
    assert checks[check_name].remedy


async def test_remaining_checks_are_skipped_when_no_task_succeeds(start_expert: StartExpert) -> None:
    _, checks = await report_on(await start_expert(FailsEveryCall()))
    assert checks["remaining checks"].level is Level.NOT_TRIED
    assert "no task succeeded" in checks["remaining checks"].found


async def test_drain_is_not_checked_without_process_id(start_expert: StartExpert) -> None:
    _, checks = await report_on(await start_expert(MinimalExpert()))
    assert checks["drain"].level is Level.NOT_TRIED
    assert "--pid" in checks["drain"].found


async def test_expert_with_batches_passes_their_check(start_expert: StartExpert) -> None:
    _, checks = await report_on(await start_expert(OffersBatches()))
    assert checks["batch"].level is Level.OK


async def test_batches_are_optional(start_expert: StartExpert) -> None:
    _, checks = await report_on(await start_expert(MinimalExpert()))
    assert checks["batch"].level is Level.NOT_TRIED
    assert "does not offer InferBatch" in checks["batch"].found


async def test_hanging_call_fails_at_call_timeout(start_expert: StartExpert) -> None:
    report, checks = await report_on(await start_expert(NeverAnswers()), seconds=0.3, load_seconds=30)
    assert not report.is_ok
    assert checks["saying (m)"].level is Level.WRONG
    assert checks["saying (m)"].found == "no answer within 0.3 s"


async def test_model_that_never_loads_fails_at_load_timeout(start_expert: StartExpert) -> None:
    report, checks = await report_on(await start_expert(NeverLoaded()), seconds=30, load_seconds=0.3)
    assert not report.is_ok
    assert checks["saying (m)"].found == "the model is not loaded within 0.3 s"


async def test_loading_time_does_not_count_as_call_time(start_expert: StartExpert) -> None:
    _, checks = await report_on(await start_expert(SlowlyLoaded(polls=3)), seconds=1, load_seconds=60)
    assert checks["saying (m)"].level is Level.OK


async def test_call_that_hangs_after_loading_fails_before_load_timeout(start_expert: StartExpert) -> None:
    expert = SlowlyLoaded(polls=3, answers=False)
    _, checks = await report_on(await start_expert(expert), seconds=0.3, load_seconds=600)
    assert checks["saying (m)"].found == "no answer within 0.3 s"


async def test_process_that_dies_in_a_call_is_reported() -> None:
    command = [sys.executable, "-m", "tests.fakes.dying_expert"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert process.stdout
    try:
        report, checks = await report_on((await process.stdout.readline()).decode().strip())
        async with asyncio.timeout(30):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    assert not report.is_ok
    assert checks["saying (m)"].level is Level.WRONG
    assert "the process died during the call" in checks["saying (m)"].found
    assert checks["remaining checks"].level is Level.NOT_TRIED
    assert not any("UNAVAILABLE" in finding.found for finding in report.findings)


async def test_progress_shows_how_long_a_check_has_run(
    start_expert: StartExpert, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.check_expert.SECONDS_BETWEEN_LINES", 0.1)
    shown = io.StringIO()
    progress = Progress(Console(file=shown))
    async with progress.running():
        await check(CheckRequest(await start_expert(NeverAnswers()), seconds=1.0), progress.begin)
    assert "saying (m): waiting for" in shown.getvalue()


async def test_error_codes_are_explained(start_expert: StartExpert) -> None:
    _, checks = await report_on(await start_expert(FailsEveryCall()))
    assert checks["saying (m)"].found == "failed inside the expert (INTERNAL/MODEL_FAILED): no"


async def test_external_models_are_called_only_with_policy_open(start_expert: StartExpert) -> None:
    address = await start_expert(ExternalModel())
    report, checks = await report_on(address)
    assert not report.is_ok  # no task was called
    assert checks["policy"].level is Level.OK
    assert checks["external tasks"].level is Level.NOT_TRIED
    assert "not called: saying" in checks["external tasks"].found
    assert "saying (m)" not in checks
    _, checks = await report_on(address, allow_external=True)
    assert checks["saying (m)"].level is Level.OK


async def test_server_without_expert_service_is_an_error() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        with pytest.raises(Unimplemented, match=r"not an expert: it does not implement hugginggpt\.v1\.ExpertService"):
            await report_on(f"127.0.0.1:{port}")
    finally:
        await server.stop(None)


async def test_expert_without_health_and_reflection_is_still_checked() -> None:
    server = grpc.aio.server()
    rpc.add_ExpertServiceServicer_to_server(MinimalExpert(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        _, checks = await report_on(f"127.0.0.1:{port}")
    finally:
        await server.stop(None)
    assert checks["health"].level is Level.WRONG
    assert checks["health"].found == "Check of grpc.health.v1: the expert does not implement the method"
    assert checks["reflection"].level is Level.WARNING
    assert checks["saying (m)"].level is Level.OK


@pytest.mark.parametrize("version", SERVICES)
async def test_reflection_of_either_version_is_enough(version: str) -> None:
    server = grpc.aio.server()
    rpc.add_ExpertServiceServicer_to_server(MinimalExpert(), server)
    servicer = reflection.aio.ReflectionServicer(["hugginggpt.v1.ExpertService"])
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(version, {"ServerReflectionInfo": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        _, checks = await report_on(f"127.0.0.1:{port}")
    finally:
        await server.stop(None)
    assert checks["reflection"].level is Level.OK


async def test_command_prints_json_and_progress_and_exits_1_on_failure(start_expert: StartExpert) -> None:
    result = await run_command(await start_expert(FailsEveryCall()), "--json", "--timeout", "10")
    printed = json.loads(result.stdout)
    levels = {each["check"]: each["level"] for each in printed["checks"]}
    assert result.status == 1
    assert printed["ok"] is False
    assert levels["saying (m)"] == "wrong"
    assert "saying (m)\n" in result.stderr


async def test_command_exits_0_with_a_table_when_all_checks_pass(tmp_path: Path) -> None:
    async with hosts(tmp_path) as start:
        host = await start(loader_of(slow_echo), loader_of(slow_echo), max_waiting=4)
        await host.until(SERVING)
        result = await run_command(host.address, "--timeout", "10")
    assert result.status == 0, result.stdout + result.stderr
    assert " 0 failed" in result.stdout


async def test_command_calls_external_models_with_policy_open(start_expert: StartExpert) -> None:
    result = await run_command(await start_expert(ExternalModel()), "--json", "--policy", "open", "--timeout", "10")
    levels = {each["check"]: each["level"] for each in json.loads(result.stdout)["checks"]}
    assert levels["saying (m)"] == "ok"


async def test_command_explains_a_server_that_is_not_an_expert() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        result = await run_command(f"127.0.0.1:{port}")
    finally:
        await server.stop(None)
    assert result.status == 1
    assert "is not an expert" in result.stderr
