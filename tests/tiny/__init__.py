"""Tiny models of the real classes, saved in the format of the Hub and loaded by the code under test.

The module of a modality, tests/tiny/<modality>.py, has MODELS: the tasks and the builder of each model, by model id.
A model is built on its first load, once per session, in <folder>/<model id>; EXPERT_MODELS_URL names the folder.
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
class TinyModel:
    """The tasks and the builder of one tiny model."""

    tasks: tuple[str, ...]
    build: Callable[[Path], None]
    """Saves weights (safetensors), configuration and tokenizer or processor in an existing, empty folder."""


@dataclass(frozen=True)
class ExpertClient:
    """Client of a running expert: converts inputs and outputs between plain Python and messages."""

    channel: grpc.aio.Channel
    store: ArtifactStore
    timeout_seconds: float = 60.0
    """Timeout of a call, loading included."""

    @property
    def stub(self) -> "ExpertServiceAsyncStub":
        return rpc.ExpertServiceStub(self.channel)

    async def call(self, task: str, inputs: Mapping[str, Any], /, model: str = "", **parameters: Any) -> dict[str, Any]:
        """Returns the outputs by port as str, parsed JSON or Media; inputs have these types, or lists of them."""
        request = pb.InferRequest(task=task, model=model, parameters_json=json.dumps(parameters))
        spec = standard_tasks().get(task)
        list_ports = {port.name for port in spec.inputs if port.many} if spec else set[str]()
        for name, value in inputs.items():
            if name in list_ports:
                request.lists[name].values.extend([await self._to_value(item) for item in value])
            else:
                request.inputs[name].CopyFrom(await self._to_value(value))
        with call_context.use_caller(Caller(tenant=TENANT)):
            reply = await self.stub.Infer(request, timeout=self.timeout_seconds, metadata=call_context.metadata())
        return {name: await self._from_value(value) for name, value in reply.outputs.items()}

    async def call_error(
        self, task: str, inputs: Mapping[str, Any], /, model: str = "", **parameters: Any
    ) -> errors.ServiceError:
        """Returns the error of a call that fails."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(task, inputs, model, **parameters)
        return errors.from_rpc(caught.value)

    async def _to_value(self, value: Any) -> Value:
        if isinstance(value, Value):
            return value
        if isinstance(value, str):
            return Value(text=value)
        if isinstance(value, Media):
            artifact = await self.store.put(TENANT, value.content, media_type=value.media_type, name=value.name)
            return Value(artifact=artifact)
        return Value(json=json.dumps(value))

    async def _from_value(self, value: Value) -> Any:
        kind = value.WhichOneof("kind")
        if kind != "artifact":
            return json.loads(value.json) if kind == "json" else value.text
        artifact = value.artifact
        content = await self.store.get(TENANT, artifact.sha256)
        if artifact.media_type == "application/json":
            return json.loads(content)
        return Media(content, artifact.media_type, artifact.name)


class TinyModels:
    """Builds and serves the tiny models of a test session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}

    def build(self, modality: str, model_id: str) -> Path:
        """Builds a model unless it exists, and returns its folder."""
        folder = self.folder / model_id
        with self._lock:
            assert self._owners.setdefault(model_id, modality) == modality, f"{model_id} belongs to two modalities"
            if not folder.exists():
                import_module("torch").set_num_threads(1)  # more threads slow down such small models
                folder.mkdir(parents=True)
                load_models(modality)[model_id].build(folder)
        return folder

    @asynccontextmanager
    async def serve(self, modality: str, **settings: Any) -> AsyncIterator[ExpertClient]:
        """Serves the modality's loaders with its tiny models; the first model of each task is the default.

        Offline mode of huggingface_hub is set meanwhile, so that no other model is fetched.
        """
        tasks = import_module(f"experts.{modality}.tasks")
        cards = [
            ModelCard(id=model_id, task=task, revision="1")
            for model_id, model in load_models(modality).items()
            for task in model.tasks
        ]
        loaders = {task: self._build_before_load(modality, loader) for task, loader in tasks.TASKS.items()}
        expert = Expert(modality, build_offers(cards, standard_tasks(), loaders), devices=tasks.DEVICES)
        store = (self.folder / "artifacts").as_uri()
        options: Mapping[str, Any] = {"listen": "127.0.0.1:0", "drain_seconds": 0, "ARTIFACTS_URL": store, **settings}
        with pytest.MonkeyPatch.context() as environment:
            environment.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
            async with serve(expert, Settings(**options)) as running, dial(f"127.0.0.1:{running.port}") as channel:
                await channel.channel_ready()
                yield ExpertClient(channel, ArtifactStore.open(store))

    def _build_before_load(self, modality: str, loader: Loader) -> Loader:
        def load(model_id: str, device: str) -> Handler | RemoteHandler:
            self.build(modality, model_id)
            return loader(model_id, device)

        return load


def load_models(modality: str) -> Mapping[str, TinyModel]:
    """Returns the tiny models of a modality."""
    models: Mapping[str, TinyModel] = import_module(f"tests.tiny.{modality}").MODELS
    return models


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyModels]:
    """Tiny models in the folder from which the torch experts load theirs."""
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("EXPERT_MODELS_URL", str(folder))
        yield TinyModels(folder)
