"""Serves an expert's package and calls it over gRPC, as the orchestrator does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from experts.host.app import serve
from experts.host.expert import read_expert
from experts.host.handler import Media
from experts.host.settings import Settings
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, Caller
from protos.hugginggpt.v1.model_pb2 import ModelCard
from services.common import call_context, errors
from services.common.artifacts import ArtifactStore
from services.common.channel import dial
from tests.support.expert_host import Host


@dataclass(frozen=True)
class ServedExpert(Host):
    """A running expert."""

    async def call(
        self,
        task: str,
        *,
        model: str = "",
        local: bool = False,
        parameters: Any = None,
        seconds: float = 20,
        **inputs: Any,
    ) -> Any:
        """Returns the outputs of a call as plain Python; media as bytes."""
        request = pb.InferRequest(task=task, model=model, parameters_json=json.dumps(parameters) if parameters else "")
        for port, value in inputs.items():
            if isinstance(value, list):
                request.lists[port].values.extend([await self._value(one) for one in value])
            else:
                request.inputs[port].CopyFrom(await self._value(value))
        policy = DATA_POLICY_LOCAL if local else DATA_POLICY_OPEN
        with call_context.use_caller(Caller(tenant="default", policy=policy)):
            reply = await self.stub.Infer(request, timeout=seconds, metadata=call_context.metadata())
        return {port: await self._plain(value) for port, value in reply.outputs.items()}

    async def call_error(self, task: str, **arguments: Any) -> errors.ServiceError:
        """Returns the error of a call that fails."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(task, **arguments)
        return errors.from_rpc(caught.value)

    async def card(self, task: str, model: str = "") -> ModelCard:
        models = (await self.describe()).models
        return next(card for card in models if card.task == task and model in ("", card.id))

    async def _value(self, plain: Any) -> Value:
        if isinstance(plain, Media):
            artifact = await self.store.put("default", plain.content, media_type=plain.media_type, name=plain.name)
            return Value(artifact=artifact)
        return Value(text=plain)

    async def _plain(self, value: Value) -> Any:
        if value.WhichOneof("kind") == "artifact":
            return await self.store.get("default", value.artifact.sha256)
        return value.text if value.WhichOneof("kind") == "text" else json.loads(value.json)


@asynccontextmanager
async def serve_expert(package: str, folder: Path) -> AsyncIterator[ServedExpert]:
    """Serves the expert of a package, configured by the environment, until it is ready."""
    settings: dict[str, Any] = {"listen": "127.0.0.1:0", "ARTIFACTS_URL": folder.as_uri()}
    expert = await asyncio.to_thread(read_expert, package)  # it may call servers on this event loop
    async with serve(expert, Settings(**settings)) as running, dial(f"127.0.0.1:{running.port}") as channel:
        await channel.channel_ready()

        async def stop() -> None:
            """Does nothing: the expert stops with the block."""

        served = ServedExpert(channel, ArtifactStore.open(folder.as_uri()), stop)
        await served.until(1)
        yield served
