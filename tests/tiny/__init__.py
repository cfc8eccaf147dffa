"""Tiny models of the real classes, saved as the Hub has them and loaded by the code that users run.

A modality's module, tests/tiny/<modality>.py, has MODELS: by model id the tasks it is for and how to build it.
Each is built when first loaded, once per session, into <folder>/<model id>, where EXPERT_MODELS_URL points.
"""

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from experts.host.app import serve
from experts.host.expert import Expert, build_offers
from experts.host.handler import Handler, Loader, Media, RemoteHandler
from experts.host.settings import Settings
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.model_pb2 import ModelCard
from services.common import call_context, errors
from services.common.artifacts import ArtifactStore
from services.common.channel import dial

if TYPE_CHECKING:
    from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceAsyncStub

TENANT = "default"


@dataclass(frozen=True)
class Model:
    """How to build one tiny model."""

    tasks: tuple[str, ...]
    build: Callable[[Path], None]
    """Saves weights (safetensors), configuration and tokenizer or processor into a folder that is there and empty."""


@dataclass(frozen=True)
class Served:
    """A modality's expert, running: plain Python in, over gRPC, plain Python out."""

    channel: grpc.aio.Channel
    store: ArtifactStore

    @property
    def stub(self) -> "ExpertServiceAsyncStub":
        return rpc.ExpertServiceStub(self.channel)

    async def ask(self, task: str, inputs: Mapping[str, Any], /, model: str = "", **parameters: Any) -> dict[str, Any]:
        """The outputs by port: str, parsed JSON, or Media; inputs alike, lists of them for ports that take many."""
        request = pb.InferRequest(task=task, model=model, parameters_json=json.dumps(parameters))
        spec = standard_tasks().get(task)
        many = {port.name for port in spec.inputs if port.many} if spec else set[str]()
        for name, given in inputs.items():
            if name in many:
                request.lists[name].values.extend([await self._value(one) for one in given])
            else:
                request.inputs[name].CopyFrom(await self._value(given))
        with call_context.use_caller(Caller(tenant=TENANT)):
            reply = await self.stub.Infer(request, timeout=60, metadata=call_context.metadata())
        return {name: await self._plain(value) for name, value in reply.outputs.items()}

    async def refusal(
        self, task: str, inputs: Mapping[str, Any], /, model: str = "", **parameters: Any
    ) -> errors.ServiceError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(task, inputs, model, **parameters)
        return errors.from_rpc(caught.value)

    async def _value(self, given: Any) -> Value:
        if isinstance(given, Value):
            return given
        if isinstance(given, str):
            return Value(text=given)
        if isinstance(given, Media):
            artifact = await self.store.put(TENANT, given.content, media_type=given.media_type, name=given.name)
            return Value(artifact=artifact)
        return Value(json=json.dumps(given))

    async def _plain(self, value: Value) -> Any:
        kind = value.WhichOneof("kind")
        if kind != "artifact":
            return json.loads(value.json) if kind == "json" else value.text
        artifact = value.artifact
        content = await self.store.get(TENANT, artifact.sha256)
        if artifact.media_type == "application/json":
            return json.loads(content)
        return Media(content, artifact.media_type, artifact.name)


class Tiny:
    """The tiny models of a session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}

    def built(self, modality: str, model_id: str) -> Path:
        """The folder of a model, built now if it is not yet."""
        folder = self.folder / model_id
        with self._lock:
            assert self._owners.setdefault(model_id, modality) == modality, f"{model_id} is of two modalities"
            if not folder.exists():
                import_module("torch").set_num_threads(1)  # more cost more than they bring on models so small
                folder.mkdir(parents=True)
                models(modality)[model_id].build(folder)
        return folder

    @asynccontextmanager
    async def expert(self, modality: str, **settings: Any) -> AsyncIterator[Served]:
        """The modality's own loaders over gRPC, with its tiny models; the first of each task is what a call gets.

        Meanwhile no network is asked for others.
        """
        tasks = import_module(f"experts.{modality}.tasks")
        cards = [
            ModelCard(id=model_id, task=task, revision="1")
            for model_id, model in models(modality).items()
            for task in model.tasks
        ]
        wrapped = {task: self._building(modality, loader) for task, loader in tasks.TASKS.items()}
        expert = Expert(modality, build_offers(cards, standard_tasks(), wrapped), devices=tasks.DEVICES)
        store = (self.folder / "artifacts").as_uri()
        told: Mapping[str, Any] = {"listen": "127.0.0.1:0", "drain_seconds": 0, "ARTIFACTS_URL": store, **settings}
        with pytest.MonkeyPatch.context() as environment:
            environment.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
            async with serve(expert, Settings(**told)) as running, dial(f"127.0.0.1:{running.port}") as channel:
                await channel.channel_ready()
                yield Served(channel, ArtifactStore.open(store))

    def _building(self, modality: str, loader: Loader) -> Loader:
        def load(model_id: str, device: str) -> Handler | RemoteHandler:
            self.built(modality, model_id)
            return loader(model_id, device)

        return load


def models(modality: str) -> Mapping[str, Model]:
    """A modality's registry."""
    found: Mapping[str, Model] = import_module(f"tests.tiny.{modality}").MODELS
    return found


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    """The session's tiny models, where the torch modalities look for theirs."""
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("EXPERT_MODELS_URL", str(folder))
        yield Tiny(folder)
