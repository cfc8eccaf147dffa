"""An expert examined as the house would use it: one that keeps its promises, and some that each break one."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from experts.host.handler import Inputs, Outputs, Parameters
from gateway.cli import app
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.types_pb2 import Artifact, ModelCard, Value
from services.runtime.errors import ModelFailed, Overloaded
from services.runtime.server import Serving, serving
from tests.hosting import SERVING, SPEC, does, hosts

EXPERT = pb.DESCRIPTOR.services_by_name["ExpertService"]

Checks = dict[str, dict[str, str]]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARTIFACTS_URL", tmp_path.as_uri())
    monkeypatch.setattr("gateway.cli.promises.checking.CONNECT_SECONDS", 1.0)
    monkeypatch.setattr("gateway.cli.promises.endurance.CROWD_SECONDS", 5.0)


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
    async with hosts(tmp_path) as start:
        host = await start(does(slowly), does(slowly), max_waiting=4)
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


class Sound(rpc.ExpertServiceServicer):
    """Keeps enough promises to be examined to the end."""

    def __init__(self) -> None:
        card = ModelCard(id="m", task="saying", revision="1", description="Says.", license="MIT")
        self.described = pb.DescribeResponse(expert="sound", revision="1", tasks=[SPEC], models=[card])
        self.described.load.loaded.append("m")
        self.reply = pb.InferResponse(outputs={"text": Value(text="hello")}, revision="1")
        self.trailer = [("expert-queue", "0"), ("expert-loaded", "m"), ("expert-free-bytes", "0")]
        self.names: tuple[str, ...] = ("m",)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        known = request.known_revision == self.described.revision
        return pb.DescribeResponse(revision="1", unchanged=True) if known else self.described

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        context.set_trailing_metadata(self.trailer)
        return self.reply

    async def Progress(self, request: pb.ProgressRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        return


class Repeating(Sound):
    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        return self.described


class Nameless(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.described.expert = ""


class Disagreeing(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.described.tasks.add(name="summarization")


class Unhealthy(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.names = ()


class Incomplete(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.reply.outputs["data"].json = self.reply.outputs.pop("text").text


class Sloppy(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.reply.outputs["data"].json = '{"b": 1}'


class Absent(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.reply.outputs["image"].artifact.CopyFrom(Artifact(sha256="0" * 64, media_type="image/png"))


class Silent(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.trailer = []


class Other(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.reply.revision = "2"


class Failing(Sound):
    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        raise ModelFailed("no", remedy="try another")


class Crowded(Sound):
    """Breaks down when there are many."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        self.calls += 1
        try:
            if self.calls > 20:
                raise ModelFailed("too many", remedy="none")
            await asyncio.sleep(0.1)
            return await super().Infer(request, context)
        finally:
            self.calls -= 1


class Rude(Crowded):
    """Does not say when to come back."""

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        try:
            return await super().Infer(request, context)
        except ModelFailed:
            raise Overloaded("too many", remedy="wait") from None


class Chatty(Sound):
    async def Progress(self, request: pb.ProgressRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        await context.write(pb.ProgressEvent(call_id=request.call_ids[0]))


Start = Callable[[Sound], Awaitable[str]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def start(expert: Sound) -> str:
            def register(server: grpc.aio.Server) -> None:
                rpc.add_ExpertServiceServicer_to_server(expert, server)

            running: Serving = await stack.enter_async_context(serving(register, EXPERT))
            await running.set_ready(*expert.names)
            return f"127.0.0.1:{running.port}"

        yield start


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
        (Chatty, "progress", "tells of a call it does not know"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_a_promise_that_is_broken_is_named(start: Start, expert: type[Sound], check: str, found: str) -> None:
    status, checks = await examined(await start(expert()))
    assert status == 1
    assert checks[check]["level"] == "wrong"
    assert found in checks[check]["found"]
    assert checks[check]["remedy"]


async def test_an_expert_without_a_task_that_works_is_not_tried_further(start: Start) -> None:
    _, checks = await examined(await start(Failing()))
    assert "no task could be done" in checks["the rest"]["found"]
