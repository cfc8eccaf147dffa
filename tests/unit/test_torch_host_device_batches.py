"""Batches of torch models on a GPU, of which streams, events and page-locked memory are replaced by fakes."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from experts.host.active_calls import ActiveCall, ActiveCalls
from experts.host.handler import Call
from experts.text.fill_mask import MaskFiller
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import launch_passes
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host
from experts.vision.detection import Detector, GroundingDinoDetector, OwlDetector
from experts.vision.segmentation import SemanticSegmenter, UniversalSegmenter

torch = pytest.importorskip("torch")


class Stream:
    def __init__(self, device: Any) -> None:
        self.device = device
        self.waited_for: list[Any] = []

    def wait_stream(self, other: Any) -> None:
        self.waited_for.append(other)


class Gpu:
    """Records what a handler does on its device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.default_stream = Stream("cuda:0")
        self.current_stream = self.default_stream
        gpu = self

        class Event:
            def __init__(self, *, blocking: bool) -> None:
                assert blocking

            def record(self) -> None:
                gpu.steps.append("record")

            def synchronize(self) -> None:
                gpu.steps.append("synchronize")

        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.current_stream)
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "current_stream", stream))


class Doubler(TorchHandler):
    def __init__(self, device: str, steps: list[str]) -> None:
        checkpoint = SimpleNamespace(model_id="m", commit="c", device=torch.device(device))
        super().__init__(checkpoint, None)  # type: ignore[arg-type]  # no files are needed
        self._steps = steps

    def prepare(self, inputs: Any, parameters: Any) -> Any: ...

    def compute(self, items: Sequence[int], call: Call) -> ReadResults:
        self._steps.append("compute")

        def read() -> list[int]:
            self._steps.append("read")
            return [2 * item for item in items]

        return read

    def finish(self, raw: Any) -> Any: ...


class Synchronous(Doubler):
    def run(self, items: Sequence[int], call: Call) -> Sequence[int]:
        return items


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


@pytest.fixture
async def call() -> Any:
    with ActiveCalls().track("default", "") as tracked:
        yield tracked


async def test_results_are_read_after_the_event_that_follows_the_batch(gpu: Gpu, call: ActiveCall) -> None:
    handler = Doubler("cuda:0", gpu.steps)
    launched = handler.launch([1, 2], call)
    assert gpu.steps == ["compute", "record"]
    assert launched.fetch() == [2, 4]
    assert gpu.steps[2:] == ["synchronize", "read"]


async def test_handler_on_a_cpu_is_not_asynchronous(gpu: Gpu, call: ActiveCall) -> None:
    handler = Doubler("cpu", gpu.steps)
    assert not handler.asynchronous
    assert handler.run([1, 2], call) == [2, 4]
    assert gpu.steps == ["compute", "read"]
    assert gpu.current_stream is gpu.default_stream


@pytest.mark.parametrize(("kind", "asynchronous"), [(Doubler, True), (Synchronous, False)])
def test_handler_on_a_gpu_is_asynchronous_unless_it_defines_run(
    gpu: Gpu, kind: type[Doubler], *, asynchronous: bool
) -> None:
    assert kind("cuda:0", gpu.steps).asynchronous == asynchronous


@pytest.mark.parametrize(
    "kind", [Detector, OwlDetector, GroundingDinoDetector, SemanticSegmenter, UniversalSegmenter, MaskFiller]
)
def test_model_of_one_pass_leaves_its_results_to_be_fetched(kind: type[TorchHandler]) -> None:
    assert kind.run is TorchHandler.run


def test_each_model_has_a_stream_that_starts_after_its_weights_are_copied(gpu: Gpu) -> None:
    Doubler("cuda:0", gpu.steps)
    first = gpu.current_stream
    assert first is not gpu.default_stream
    assert first.waited_for == [gpu.default_stream]
    assert first.device == torch.device("cuda:0")
    Doubler("cuda:0", gpu.steps)
    assert gpu.current_stream is not first


class Tensor:
    """A tensor that records how it is moved."""

    def __init__(self, device: str, *, is_float: bool, steps: list[Any]) -> None:
        self.device, self.steps = torch.device(device), steps
        self._is_float = is_float

    def is_floating_point(self) -> bool:
        return self._is_float

    def pin_memory(self) -> "Tensor":
        self.steps.append("pin")
        return self

    def to(self, device: Any, dtype: Any = None, *, non_blocking: bool = False) -> "Tensor":
        self.steps.append((str(device), dtype, non_blocking))
        return Tensor(str(device), is_float=self._is_float, steps=self.steps)


@pytest.mark.parametrize("is_float", [False, True])
def test_batch_is_copied_to_a_gpu_from_pinned_memory_and_converted_there(*, is_float: bool) -> None:
    model = SimpleNamespace(device=torch.device("cuda:0"), dtype=torch.bfloat16)
    value = Tensor("cpu", is_float=is_float, steps=[])
    move_to_device({"x": value}, model)
    assert value.steps[:2] == ["pin", ("cuda:0", None, True)]
    assert value.steps[2:] == [("cuda:0", torch.bfloat16 if is_float else None, False)]


def test_batch_for_a_cpu_is_not_pinned() -> None:
    value = Tensor("cpu", is_float=True, steps=[])
    move_to_device({"x": value}, SimpleNamespace(device=torch.device("cpu"), dtype=torch.float32))
    assert value.steps == [("cpu", torch.float32, False)]


def test_output_is_copied_in_float32() -> None:
    copied = copy_to_host(torch.ones(2, dtype=torch.bfloat16, requires_grad=True))
    assert copied.dtype == torch.float32
    assert not copied.requires_grad


async def test_outputs_of_passes_are_read_only_on_request(call: ActiveCall) -> None:
    passes = launch_passes([["a", "bb"], ["ccc"]], len, iter, call, max_tokens=3)

    def read(pieces: Sequence[str], output: Iterator[str]) -> list[str]:
        return [piece.upper() for piece in output]

    assert passes.read(read) == [["A", "BB"], ["CCC"]]
