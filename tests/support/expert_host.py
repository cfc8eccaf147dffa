"""A running expert host with models that tests control."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from experts.host.app import serve
from experts.host.expert import Expert, build_offers
from experts.host.handler import (
    Batching,
    Call,
    Handler,
    Inputs,
    Loader,
    Outputs,
    Parameters,
    RemoteHandler,
    Single,
    single,
)
from experts.host.settings import Settings
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_IMAGE, MODALITY_JSON, MODALITY_TEXT, Value
from protos.hugginggpt.v1.caller_pb2 import (
    DATA_POLICY_UNSPECIFIED,
    PRIORITY_UNSPECIFIED,
    Caller,
    DataPolicy,
    Priority,
)
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.task_pb2 import Parameter, Port, TaskSpec
from services.common import call_context, errors
from services.common.artifacts import ArtifactStore
from services.common.channel import dial

if TYPE_CHECKING:
    from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceAsyncStub

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

SPEC = TaskSpec(
    name="saying",
    inputs=[
        Port(name="text", modality=MODALITY_TEXT, required=True),
        Port(name="image", modality=MODALITY_IMAGE),
        Port(name="data", modality=MODALITY_JSON),
    ],
    outputs=[
        Port(name="text", modality=MODALITY_TEXT, required=True),
        Port(name="data", modality=MODALITY_JSON),
        Port(name="image", modality=MODALITY_IMAGE),
    ],
    parameters=[Parameter(name="times", json_schema='{"default":1,"maximum":3,"minimum":1,"type":"integer"}')],
)

Function = Callable[[Inputs, Parameters], Outputs]


@dataclass(frozen=True)
class Host:
    """A running host and its clients."""

    channel: grpc.aio.Channel
    store: ArtifactStore
    stop: Callable[[], Coroutine[Any, Any, None]]
    address: str = ""

    @property
    def stub(self) -> "ExpertServiceAsyncStub":
        return rpc.ExpertServiceStub(self.channel)

    def infer(
        self,
        text: str = "hello",
        *,
        tenant: str = "default",
        priority: Priority.ValueType = PRIORITY_UNSPECIFIED,
        timeout: float = 10,
        **fields: Any,
    ) -> Any:
        """An active call: awaitable, cancellable, with trailing metadata."""
        values = {"text": Value(text=text)} | fields.pop("inputs", {})
        request = pb.InferRequest(**{"task": "saying", "inputs": values, **fields})
        with call_context.use_caller(Caller(tenant=tenant, priority=priority)):
            return self.stub.Infer(request, timeout=timeout, metadata=call_context.metadata())

    def infer_batch(
        self,
        *texts: str,
        tenant: str = "default",
        priority: Priority.ValueType = PRIORITY_UNSPECIFIED,
        policy: DataPolicy.ValueType = DATA_POLICY_UNSPECIFIED,
        timeout: float = 10,
        items: Sequence[pb.InferBatchItem] = (),
        **fields: Any,
    ) -> Any:
        """An active call of InferBatch with an item for each text, then the other items."""
        given = [*(pb.InferBatchItem(inputs={"text": Value(text=text)}) for text in texts), *items]
        request = pb.InferBatchRequest(**{"task": "saying", "items": given, **fields})
        with call_context.use_caller(Caller(tenant=tenant, priority=priority, policy=policy)):
            return self.stub.InferBatch(request, timeout=timeout, metadata=call_context.metadata())

    async def refusal(self, **fields: Any) -> errors.ServiceError:
        return await refusal_of(self.infer(**fields))

    async def describe(self, known: str = "") -> pb.DescribeResponse:
        return await self.stub.Describe(pb.DescribeRequest(known_revision=known), timeout=10)

    async def health(self, *names: str) -> list[int]:
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        requests = [health_pb2.HealthCheckRequest(service=name) for name in names]
        return [(await stub.Check(request, timeout=10)).status for request in requests]

    def watch(self, name: str = "") -> Any:
        """Stream of the health status of a service name; the caller cancels it."""
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        return stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=60)

    async def until_waiting(self, count: int) -> None:
        """Waits until `count` calls are queued."""
        while (await self.describe()).load.waiting < count:
            pass

    async def until(self, status: int, name: str = "") -> None:
        watch = self.watch(name)
        await wait_for_status(watch, status)
        watch.cancel()


async def refusal_of(call: Any) -> errors.ServiceError:
    """Returns the error of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return errors.from_rpc(caught.value)


async def wait_for_status(watch: Any, status: int) -> None:
    """Waits for a health status."""
    while (await watch.read()).status != status:
        pass


Start = Callable[..., Awaitable[Host]]


@asynccontextmanager
async def hosts(folder: Path) -> AsyncIterator[Start]:
    """Starts hosts of the models "m" and "other" with given loaders; the folder is their artifact store."""
    async with AsyncExitStack() as stack:

        async def start(
            loader: Loader = echo, other: Loader = echo, *, preload: Sequence[str] = ("m", "other"), **settings: Any
        ) -> Host:
            load = partial(_either, loader, other)
            cards = [ModelCard(id=name, revision="1", task="saying") for name in ("m", "other")]
            expert = Expert("test", build_offers(cards, {"saying": SPEC}, {"saying": load}), tuple(preload), "0")
            values: Mapping[str, Any] = {"listen": "127.0.0.1:0", "ARTIFACTS_URL": folder.as_uri(), **settings}
            server = await stack.enter_async_context(AsyncExitStack())
            running = await server.enter_async_context(serve(expert, Settings(**values)))
            address = f"127.0.0.1:{running.port}"
            channel = await stack.enter_async_context(dial(address))
            await channel.channel_ready()
            return Host(channel, ArtifactStore.open(folder.as_uri()), server.aclose, address)

        yield start


def _either(loader: Loader, other: Loader, model_id: str, device: str) -> Handler | RemoteHandler:
    return (loader if model_id == "m" else other)(model_id, device)


def _echoed(inputs: Inputs, parameters: Parameters) -> Outputs:
    return {"text": inputs["text"] * parameters["times"]}


def echo(model_id: str, device: str) -> Handler:
    return single(_echoed)


def with_memory(size: int) -> Loader:
    """A model that returns its input and declares its memory in bytes."""

    @dataclass(eq=False)
    class Sized(Single):
        memory_bytes: int = size

    return lambda model_id, device: Sized(lambda inputs, parameters: {"text": inputs["text"]})


def loader_of(function: Function) -> Loader:
    return lambda model_id, device: single(function)


class Gate(Handler):
    """A model whose calls block until released."""

    def __init__(self) -> None:
        self.entered, self.release = threading.Event(), threading.Event()
        self.noticed = threading.Event()
        self.texts: list[str] = []

    def __call__(self, model_id: str, device: str) -> Handler:
        return self

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        return str(inputs["text"])

    def run(self, items: Sequence[str], call: Call) -> Sequence[str]:
        self.texts += items
        call.progress(0.5, "half")
        self.entered.set()
        while not self.release.wait(0.01):
            if call.cancelled:
                self.noticed.set()
        return items

    def finish(self, raw: str) -> Outputs:
        return {"text": raw}


class Batches(Handler):
    """A model that records its batches and blocks the first until released; the input "poison" fails its batch."""

    def __init__(self, batching: Batching | None = None) -> None:
        self.batching = batching or Batching()
        self.batches: list[list[str]] = []
        self.entered, self.release = threading.Event(), threading.Event()
        self.prepared = threading.Semaphore(0)

    def __call__(self, model_id: str, device: str) -> Handler:
        return self

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        self.prepared.release()
        return str(inputs["text"])

    def cost(self, item: str) -> float:
        return len(item)

    def run(self, items: Sequence[str], call: Call) -> Sequence[str]:
        self.batches.append(list(items))
        self.entered.set()
        assert self.release.wait(10)
        if "poison" in items:
            raise ValueError("poison")
        return [item.upper() for item in items]

    def finish(self, raw: str) -> Outputs:
        return {"text": raw}

    async def all_prepared(self, count: int) -> None:
        """Waits until `count` further inputs have been prepared."""
        for _ in range(count):
            assert await asyncio.to_thread(self.prepared.acquire, timeout=5)


async def wait_for_event(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 5)
