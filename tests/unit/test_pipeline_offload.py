"""Pipelines of which a GPU has one model at a time."""

from pathlib import Path
from typing import Any

import pytest
import torch

from experts.host import load_context
from experts.host.load_context import LoadContext, PipelineOptions
from experts.torch_host import pipelines
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.pipelines import count_bytes, count_largest_bytes, is_offloaded, load_components
from experts.video.generation import VideoGenerator
from experts.video.tasks import TASKS
from tests.tiny import TinyModels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]

GPU = torch.device("cuda", 0)
OFFLOADED = LoadContext(pipeline=PipelineOptions({"height": 64, "width": 64, "num_frames": 5}, offload=True))


class RunningCall:
    """A call that is cancelled after its first step, if at all."""

    def __init__(self, *, stops: bool = False) -> None:
        self.cancelled, self._stops = False, stops

    def progress(self, _fraction: float, _message: str = "") -> None:
        self.cancelled = self._stops


class RecordingPipeline:
    """A pipeline that records where it is put."""

    def __init__(self) -> None:
        self.moved_to: list[Any] = []
        self.offloaded_from: list[Any] = []

    def to(self, device: Any) -> "RecordingPipeline":
        self.moved_to.append(device)
        return self

    def enable_model_cpu_offload(self, device: Any) -> None:
        self.offloaded_from.append(device)


class PipelineClass:
    @staticmethod
    def from_pretrained(_folder: Path, **_: Any) -> RecordingPipeline:
        return RecordingPipeline()


@pytest.fixture
def folder(tiny_models: TinyModels) -> Path:
    return tiny_models.build("video", "tiny/wan")


def checkpoint(folder: Path, device: torch.device) -> Checkpoint:
    return Checkpoint("tiny/wan", folder, "", device, torch.float32)


@pytest.mark.parametrize(("offload", "device"), [(False, GPU), (True, torch.device("cpu"))])
def test_models_of_an_offloaded_pipeline_are_loaded_into_the_memory_of_the_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, offload: bool, device: torch.device
) -> None:
    loaded = {}

    def record(part: Checkpoint, *_: Any, **__: Any) -> None:
        loaded[part.folder.name] = part.device

    monkeypatch.setattr(Checkpoint, "component", record)
    with load_context.use(LoadContext(pipeline=PipelineOptions(offload=offload))):
        load_components(checkpoint(folder, GPU))
    assert loaded == dict.fromkeys(("text_encoder", "transformer", "vae"), device)


def test_offloaded_pipeline_is_not_moved_to_the_gpu(folder: Path) -> None:
    pipeline = checkpoint(folder, GPU).pipeline(PipelineClass, offload=True)
    assert pipeline.moved_to == []
    assert pipeline.offloaded_from == [GPU]


def test_other_pipeline_is_moved_to_its_device(folder: Path) -> None:
    pipeline = checkpoint(folder, GPU).pipeline(PipelineClass)
    assert pipeline.moved_to == [GPU]
    assert pipeline.offloaded_from == []


def test_pipeline_on_a_cpu_is_not_offloaded(folder: Path) -> None:
    with load_context.use(OFFLOADED):
        assert not is_offloaded(checkpoint(folder, torch.device("cpu")))


@pytest.fixture
def offloaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> VideoGenerator:
    """A handler of a pipeline that is offloaded from a CPU, in place of a GPU."""
    del folder
    monkeypatch.setattr(pipelines, "is_offloaded", lambda _: load_context.current().pipeline.offload)
    with load_context.use(OFFLOADED):
        handler = TASKS["text-to-video"]("tiny/wan", "cpu")
    assert isinstance(handler, VideoGenerator)
    return handler


def test_offloaded_pipeline_takes_the_memory_of_its_largest_model(offloaded: VideoGenerator) -> None:
    assert 0 < offloaded.memory_bytes == count_largest_bytes(offloaded.model) < count_bytes(offloaded.model)


def test_offloaded_pipeline_makes_the_same_video(offloaded: VideoGenerator) -> None:
    resident = TASKS["text-to-video"]("tiny/wan", "cpu")
    parameters = {"num_inference_steps": 2, "num_frames": 5, "seed": 1}
    item = offloaded.prepare({"text": "a cat"}, parameters)
    (video, _), *_ = offloaded.run([item], RunningCall())
    assert isinstance(resident, VideoGenerator)
    (expected, _), *_ = resident.run([item], RunningCall())
    assert (video == expected).all()


def test_cancelled_call_leaves_no_model_on_the_device(
    offloaded: VideoGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed = []
    monkeypatch.setattr(offloaded.model, "maybe_free_model_hooks", lambda: freed.append(True))
    item = offloaded.prepare({"text": "a cat"}, {"num_inference_steps": 9, "num_frames": 5, "seed": 1})
    assert offloaded.run([item], RunningCall(stops=True)) == []
    assert freed
