"""Models fetched by --prefetch load without a network."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from experts.audio.voice_conversion import VOCODER, VOCODER_COMMIT
from experts.diffusion.controlnet import BASE_MODELS
from experts.host import load_context
from experts.host.devices import Placements
from experts.host.expert import Expert, build_offers, read_expert
from experts.host.prefetch import prefetch
from experts.vision.poses import PERSON_DETECTOR
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.model_pb2 import ModelCard
from tests.fakes.hub import Hub, Repository, running_hub
from tests.tiny import TinyModels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]

COMMIT = "1" * 40
NAMES = "dslim/bert-base-NER"
OTHER = "google-bert/bert-base-uncased"

MODELS = {
    "text": ("token-classification", "tiny/tagger"),
    "vision": ("keypoint-detection", "tiny/vitpose"),
    "audio": ("audio-to-audio", "tiny/conversion"),
    "diffusion": ("canny-text-to-image", "tiny/controlnet"),
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The Hub that this process uses, with an empty cache."""
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.delenv("EXPERT_MODELS_URL", raising=False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        yield hub


def repository(folder: Path, commit: str = COMMIT, without: str = "") -> Repository:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return Repository({name: files[name] for name in files if not without or not name.startswith(without)}, commit)


def everything(tiny_models: TinyModels) -> dict[str, Repository]:
    """Repositories of a model and its dependencies, separate as on the Hub."""
    built = {model: tiny_models.build(modality, model) for modality, (_, model) in MODELS.items()}
    base = BASE_MODELS[768]
    return {
        **{model: repository(folder, without="vocoder/") for model, folder in built.items()},
        VOCODER: repository(built["tiny/conversion"] / "vocoder", VOCODER_COMMIT),
        PERSON_DETECTOR: repository(tiny_models.build("vision", PERSON_DETECTOR)),
        base.model_id: repository(tiny_models.folder / base.model_id, base.commit),
    }


@pytest.mark.parametrize("modality", MODELS)
def test_prefetched_model_loads_offline_with_its_dependencies(
    modality: str, tiny_models: TinyModels, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories.update(everything(tiny_models))
    task, model = MODELS[modality]
    tasks = import_module(f"experts.{modality}.tasks")
    offers = build_offers([ModelCard(id=model, task=task, revision=COMMIT)], standard_tasks(), tasks.TASKS)
    assert prefetch(Expert(modality, offers, devices=tasks.DEVICES), Placements("*=cpu"))
    hub.repositories.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with load_context.use(load_context.LoadContext(COMMIT)):
        assert tasks.TASKS[task](model, "cpu")


def test_prefetch_for_a_gpu_fetches_half_precision_weights(tiny_models: TinyModels, hub: Hub) -> None:
    plain = repository(tiny_models.build("diffusion", "tiny/sd"))
    halves = {name.replace(".safetensors", ".fp16.safetensors"): content for name, content in plain.files.items()}
    hub.repositories["tiny/sd"] = Repository({**plain.files, **halves}, COMMIT)
    tasks = import_module("experts.diffusion.tasks")
    cards = [ModelCard(id="tiny/sd", task="text-to-image", revision=COMMIT)]
    offers = build_offers(cards, standard_tasks(), tasks.TASKS)
    assert prefetch(Expert("diffusion", offers, devices=tasks.DEVICES), Placements("*=cuda"))
    weights = {path for path in hub.requested_paths if path.endswith(".safetensors")}
    assert weights
    assert all(path.endswith(".fp16.safetensors") for path in weights)


def tagger(tiny_models: TinyModels) -> Repository:
    """Replaces the real model, at its commit."""
    card = read_expert("experts.text").find("token-classification", NAMES).card
    return repository(tiny_models.build("text", "tiny/tagger"), card.revision)


async def fetched(hub: Hub, folder: Path, *options: str, **environment: str) -> tuple[int, list[dict[str, Any]]]:
    """Returns the exit status and the log of the program."""
    own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder), "HF_HUB_OFFLINE": "0", **environment}
    inherited = {name: value for name, value in os.environ.items() if name != "EXPERT_MODELS_URL"}
    command = (sys.executable, "-m", "experts.text", "--prefetch", *options)
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env={**inherited, **own})
    _, log = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in log.splitlines()]


async def test_prefetch_fetches_allowed_models_once(tiny_models: TinyModels, hub: Hub, tmp_path: Path) -> None:
    hub.repositories[NAMES] = await asyncio.to_thread(tagger, tiny_models)
    status, log = await fetched(hub, tmp_path, EXPERT_ALLOWED=NAMES)
    assert status == 0
    assert {line["level"] for line in log} == {"info"}
    assert {"fetching", "downloaded", "model fetched"} <= {line["event"] for line in log}
    hub.requested_paths.clear()
    status, log = await fetched(hub, tmp_path, EXPERT_ALLOWED=NAMES, HF_HUB_OFFLINE="1")
    assert status == 0
    assert hub.requested_paths == []


async def test_prefetch_logs_each_failed_model_in_one_line(tiny_models: TinyModels, hub: Hub, tmp_path: Path) -> None:
    hub.repositories[NAMES] = await asyncio.to_thread(tagger, tiny_models)
    hub.repositories[OTHER] = Repository({}, gated=True)
    status, log = await fetched(hub, tmp_path, EXPERT_ALLOWED=f"{OTHER},{NAMES}")
    (complaint,) = (line for line in log if line["level"] == "error")
    assert status == 1
    assert complaint["model"] == OTHER
    assert "safetensors" in complaint["error"]
    assert complaint["remedy"]
    assert [line["model"] for line in log if line["event"] == "model fetched"] == [NAMES]


async def test_missing_model_that_was_tried_is_allowed(tiny_models: TinyModels, hub: Hub, tmp_path: Path) -> None:
    hub.repositories[NAMES] = await asyncio.to_thread(tagger, tiny_models)
    hub.repositories[OTHER] = Repository({}, gated=True)
    allowed = {"EXPERT_ALLOWED": f"{OTHER},{NAMES}"}
    status, _ = await fetched(hub, tmp_path, HF_HUB_OFFLINE="1", **allowed)
    assert status == 1
    status, _ = await fetched(hub, tmp_path, **allowed)
    assert status == 1
    status, log = await fetched(hub, tmp_path, "--allow-missing", HF_HUB_OFFLINE="1", **allowed)
    assert status == 0
    (served,) = (line for line in log if line["event"] == "the expert serves without these models")
    assert served["missing"] == [OTHER]


async def test_missing_model_that_was_not_tried_is_waited_for(
    tiny_models: TinyModels, hub: Hub, tmp_path: Path
) -> None:
    hub.repositories[NAMES] = await asyncio.to_thread(tagger, tiny_models)
    await fetched(hub, tmp_path, EXPERT_ALLOWED=NAMES)
    allowed = {"EXPERT_ALLOWED": f"{OTHER},{NAMES}"}
    status, _ = await fetched(hub, tmp_path, "--allow-missing", HF_HUB_OFFLINE="1", **allowed)
    assert status == 1


async def test_expert_without_any_model_is_not_allowed(hub: Hub, tmp_path: Path) -> None:
    hub.repositories[OTHER] = Repository({}, gated=True)
    status, _ = await fetched(hub, tmp_path, "--allow-missing", EXPERT_ALLOWED=OTHER)
    assert status == 1


async def test_prefetch_without_allowed_models_fails(hub: Hub, tmp_path: Path) -> None:
    status, (complaint,) = await fetched(hub, tmp_path, EXPERT_ALLOWED="org/unknown")
    assert status == 1
    assert complaint["event"] == "cannot run"
    assert NAMES in complaint["remedy"]
