import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from protos.hugginggpt.internal.v1 import responder_pb2 as pb
from protos.hugginggpt.internal.v1 import responder_pb2_grpc as rpc
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, Caller
from protos.hugginggpt.v1.run_pb2 import Turn
from services.common import call_context, errors
from services.common.channel import dial
from services.common.server import serving
from tests.conftest import Serve

RESPONDER = pb.DESCRIPTOR.services_by_name["ResponderService"]


class Raising(rpc.ResponderServiceServicer):
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def Respond(self, request: pb.RespondRequest, context: Any) -> AsyncIterator[pb.RespondEvent]:  # type: ignore[override]  # stubs only know generators
        raise self.error


class CallerReporter(rpc.ResponderServiceServicer):
    async def Respond(self, request: pb.RespondRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        await context.write(pb.RespondEvent(text=call_context.current().SerializeToString().hex()))


def registration(servicer: rpc.ResponderServiceServicer) -> Any:
    return partial(rpc.add_ResponderServiceServicer_to_server, servicer)


async def respond(channel: grpc.aio.Channel, metadata: Any = None) -> list[pb.RespondEvent]:
    stub = rpc.ResponderServiceStub(channel)
    request = pb.RespondRequest(conversation=[Turn(text="hello")])
    return [event async for event in stub.Respond(request, timeout=5, metadata=metadata)]


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRequest("no picture", remedy="send one", port="image"),
        errors.NotFound("no such run", reason="RUN"),
        errors.Overloaded("busy", retry_after=timedelta(seconds=1.5)),
        errors.OutOfMemory("does not fit"),
        errors.FailedPrecondition("did not load", reason="LOAD_FAILED", remedy="look at the log"),
        errors.CorruptData("port text is missing"),
        errors.ModelFailed("nan"),
        errors.PermissionDenied("not yours"),
        errors.AlreadyExists("key used", reason="IDEMPOTENCY"),
        errors.DeadlineExceeded("too late"),
        errors.Unimplemented("not here"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_error_crosses_grpc_unchanged(serve: Serve, error: errors.ServiceError) -> None:
    channel = await serve(registration(Raising(error)), RESPONDER)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await respond(channel)
    received = errors.from_rpc(caught.value)
    assert caught.value.code() is error.code
    assert vars(received) | {"code": error.code} == vars(error) | {"code": error.code}
    assert errors.recovery_action(received) is errors.recovery_action(error)


@pytest.mark.parametrize("letter", ["a", "é", "語"])
async def test_long_error_is_truncated(serve: Serve, letter: str) -> None:
    channel = await serve(registration(Raising(errors.NotFound(letter * 50_000, remedy=letter * 50_000))), RESPONDER)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await respond(channel)
    received = errors.from_rpc(caught.value)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert received.reason == "NOT_FOUND"
    assert received.message.startswith(letter * 400)
    assert received.remedy.startswith(letter * 200)


async def test_details_of_a_different_code_are_ignored(serve: Serve) -> None:
    class Contradictory(rpc.ResponderServiceServicer):
        async def Respond(self, request: pb.RespondRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
            details = status_pb2.Status(code=5, message="one code").SerializeToString()
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
            await context.abort(grpc.StatusCode.INTERNAL, "another code")

    channel = await serve(registration(Contradictory()), RESPONDER)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await respond(channel)
    received = errors.from_rpc(caught.value)
    assert received.code == grpc.StatusCode.INTERNAL
    assert received.message == "another code"


@pytest.mark.parametrize(("message", "reason"), [(b"\x0a\x04\x12\x02\xff\xff", "NOT_UTF8"), (b"\xff\xff", "INVALID")])
async def test_malformed_message_is_an_invalid_request(serve: Serve, message: bytes, reason: str) -> None:
    channel = await serve(registration(CallerReporter()), RESPONDER)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in channel.unary_stream(f"/{RESPONDER.full_name}/Respond", bytes, bytes)(message, timeout=5):
            pass
    received = errors.from_rpc(caught.value)
    assert received.code == grpc.StatusCode.INVALID_ARGUMENT
    assert received.reason == reason


async def test_unexpected_exception_is_internal_without_details(serve: Serve) -> None:
    channel = await serve(registration(Raising(ZeroDivisionError("secret"))), RESPONDER)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await respond(channel)
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert caught.value.details() == "internal error"


async def test_disconnected_client_is_not_logged_as_an_error(serve: Serve) -> None:
    channel = await serve(registration(Raising(grpc.aio.InternalError("could not send"))), RESPONDER)
    with capture_logs() as logs, pytest.raises(grpc.aio.AioRpcError):
        await respond(channel)
    assert not [entry for entry in logs if entry["log_level"] == "error"]


async def test_caller_is_passed_on_in_metadata(serve: Serve) -> None:
    channel = await serve(registration(CallerReporter()), RESPONDER)
    caller = Caller(tenant="acme", policy=DATA_POLICY_OPEN, request_id="r-1")
    with call_context.use_caller(caller):
        (event,) = await respond(channel, call_context.metadata())
    assert Caller.FromString(bytes.fromhex(event.text)) == caller


async def test_missing_caller_has_the_data_policy_local(serve: Serve) -> None:
    channel = await serve(registration(CallerReporter()), RESPONDER)
    (event,) = await respond(channel)
    assert Caller.FromString(bytes.fromhex(event.text)).policy == DATA_POLICY_LOCAL


async def test_malformed_caller_metadata_is_rejected(serve: Serve) -> None:
    channel = await serve(registration(CallerReporter()), RESPONDER)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await respond(channel, ((call_context.METADATA_KEY, b"\xff\xff"),))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["", "startup", "readiness", "liveness", "hugginggpt.internal.v1.ResponderService"])
async def test_health_serves_all_probe_names(serve: Serve, name: str) -> None:
    channel = await serve(registration(CallerReporter()), RESPONDER)
    request = health_pb2.HealthCheckRequest(service=name)
    stub: Any = health_pb2_grpc.HealthStub(channel)
    reply = await stub.Check(request, timeout=5)
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


async def test_server_that_is_not_ready_is_live() -> None:
    async with (
        serving(registration(CallerReporter()), RESPONDER, ready=False) as running,
        dial(f"127.0.0.1:{running.port}") as channel,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)
        states = [
            (await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5, wait_for_ready=True)).status
            for name in ("liveness", "readiness")
        ]
    assert states == [health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]


async def test_health_watch_ends_with_the_server() -> None:
    async with asyncio.timeout(5):
        async with serving(registration(CallerReporter()), RESPONDER, drain_seconds=60) as running:
            channel = dial(f"127.0.0.1:{running.port}")
            stub: Any = health_pb2_grpc.HealthStub(channel)
            watch = aiter(stub.Watch(health_pb2.HealthCheckRequest(service="readiness"), wait_for_ready=True))
            first = (await anext(watch)).status
        rest = [reply.status async for reply in watch]
        await channel.close()
    assert first == health_pb2.HealthCheckResponse.SERVING
    assert set(rest) == {health_pb2.HealthCheckResponse.NOT_SERVING}


async def test_shutdown_notifies_each_health_watch_once(caplog: pytest.LogCaptureFixture) -> None:
    received: dict[int, list[int]] = {each: [] for each in range(90)}
    is_first_notified = asyncio.Event()

    async def watch(each: int) -> None:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        async for reply in stub.Watch(health_pb2.HealthCheckRequest(service="readiness"), wait_for_ready=True):
            received[each].append(reply.status)
            is_first_notified.set()

    async with asyncio.timeout(10):
        async with serving(registration(CallerReporter()), RESPONDER, drain_seconds=60) as running:
            channel = dial(f"127.0.0.1:{running.port}")
            watches = [asyncio.create_task(watch(each)) for each in received]
            await is_first_notified.wait()
        await asyncio.wait(watches)
        await channel.close()
    for each in watches:
        each.exception()  # a call that came too late was refused
    state = health_pb2.HealthCheckResponse
    assert {tuple(each) for each in received.values()} <= {(), (state.NOT_SERVING,), (state.SERVING, state.NOT_SERVING)}
    assert not [entry for entry in caplog.records if entry.name.startswith("grpc")]


async def test_health_of_an_unknown_service_is_not_found(serve: Serve) -> None:
    channel = await serve(registration(CallerReporter()), RESPONDER)
    stub: Any = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service="nothing")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(request, timeout=5)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    reply = await anext(aiter(stub.Watch(request, timeout=5)))
    assert reply.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def test_shutdown_hook_runs_while_calls_are_active() -> None:
    seen: list[object] = []

    async def hook() -> None:
        seen.append((await stub.Check(health_pb2.HealthCheckRequest(service="readiness"), timeout=5)).status)
        seen.extend(await respond(channel))

    async with serving(registration(CallerReporter()), RESPONDER, on_shutdown=hook) as running:
        channel = dial(f"127.0.0.1:{running.port}")
        await channel.channel_ready()
        stub: Any = health_pb2_grpc.HealthStub(channel)
    await channel.close()
    assert seen[0] == health_pb2.HealthCheckResponse.NOT_SERVING
    assert len(seen) == 2


async def test_shutdown_hook_times_out_within_the_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.server._HOOK_SECONDS", 0.0)
    async with asyncio.timeout(5):
        with capture_logs() as logs:
            async with serving(
                registration(CallerReporter()), RESPONDER, on_shutdown=asyncio.Event().wait, drain_seconds=0.1
            ):
                pass
    assert "shutdown hook timed out" in {entry["event"] for entry in logs}


async def test_failed_shutdown_hook_does_not_prevent_shutdown() -> None:
    async def hook() -> None:
        raise ZeroDivisionError

    with capture_logs() as logs:
        async with serving(registration(CallerReporter()), RESPONDER, on_shutdown=hook) as running:
            pass
    assert "shutdown hook failed" in {entry["event"] for entry in logs}
    async with serving(registration(CallerReporter()), RESPONDER, listen=f"127.0.0.1:{running.port}", exclusive=True):
        pass


def reflection_messages(version: str) -> tuple[Any, Any]:
    """Classes of the request and the response of server reflection in a version."""
    pool = descriptor_pool.Default()
    names = (f"grpc.reflection.{version}.ServerReflection{kind}" for kind in ("Request", "Response"))
    request, response = (GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return request, response


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_and_describes_services(serve: Serve, version: str) -> None:
    channel = await serve(registration(CallerReporter()), RESPONDER)
    request, response = reflection_messages(version)
    service = f"grpc.reflection.{version}.ServerReflection"
    call = channel.stream_stream(f"/{service}/ServerReflectionInfo", request.SerializeToString, response.FromString)
    names = [RESPONDER.full_name, service]
    requests = [request(list_services=""), *(request(file_containing_symbol=name) for name in names)]
    listed, *described = [reply async for reply in call(iter(requests), timeout=5)]
    assert set(names) <= {each.name for each in listed.list_services_response.service}
    for name, reply in zip(names, described, strict=True):
        file, *_dependencies = reply.file_descriptor_response.file_descriptor_proto
        assert FileDescriptorProto.FromString(file).package == name.rpartition(".")[0]


async def test_port_in_use_is_unavailable() -> None:
    async with serving(registration(CallerReporter()), RESPONDER, exclusive=True) as running:
        with pytest.raises(errors.Unavailable, match="in use"):
            async with serving(
                registration(CallerReporter()), RESPONDER, listen=f"127.0.0.1:{running.port}", exclusive=True
            ):
                pass
