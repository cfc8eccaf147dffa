"""Shared code of the torch modalities: batches, generation, labels, devices."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from experts.torch_host.classification import top_labels
from experts.torch_host.devices import TorchDevices, find_device, inference_context, select_dtype
from experts.torch_host.generation import generate_tokens
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.sampling import Sampling
from services.common.errors import FailedPrecondition, ModelFailed, OutOfMemory

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pynvml = pytest.importorskip("pynvml")


class FakeCall:
    """A call that is cancelled after a number of checks."""

    def __init__(self, checks: int = 1_000_000) -> None:
        self._checks = checks
        self.fractions: list[float] = []

    @property
    def cancelled(self) -> bool:
        self._checks -= 1
        return self._checks < 0

    def progress(self, fraction: float, message: str = "") -> None:
        self.fractions.append(fraction)


def length(piece: str) -> int:
    return len(piece)


def test_results_of_pieces_are_returned_by_item() -> None:
    passes = []

    def compute(pieces: Sequence[str]) -> list[str]:
        passes.append(len(pieces) * max(map(len, pieces)))
        return [piece.upper() for piece in pieces]

    items = [["aaa", "b"], [], ["cccccc"], ["dd", "ee", "f"]]
    call = FakeCall()
    assert run_in_passes(items, length, compute, call, max_tokens=6) == [
        ["AAA", "B"],
        [],
        ["CCCCCC"],
        ["DD", "EE", "F"],
    ]
    assert max(passes) <= 6
    assert call.fractions == sorted(call.fractions)


def test_pieces_of_different_kinds_run_in_separate_batches() -> None:
    seen = []

    def compute(pieces: Sequence[str]) -> Sequence[str]:
        seen.append({piece[0] for piece in pieces})
        return pieces

    run_in_passes([["a1", "b1"], ["a2", "b22"]], length, compute, FakeCall(), kind=lambda piece: piece[0])
    assert sorted(map(sorted, seen)) == [["a"], ["b"]]


def test_cancelled_call_stops_computing() -> None:
    computed: list[str] = []

    def compute(pieces: Sequence[str]) -> Sequence[str]:
        computed.extend(pieces)
        return pieces

    assert run_in_passes([["a"], ["b"], ["c"]], length, compute, FakeCall(checks=2), max_tokens=1) == []
    assert len(computed) == 2


@pytest.mark.parametrize(("left", "expected"), [(False, [[5, 6, 9], [7, 9, 9]]), (True, [[9, 5, 6], [9, 9, 7]])])
def test_rows_are_padded_to_the_longest(*, left: bool, expected: list[list[int]]) -> None:
    rows = [{"input_ids": [5, 6], "attention_mask": [1, 1]}, {"input_ids": [7], "attention_mask": [1]}]
    longest = {"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1]}
    batch = pad_rows([*rows, longest], 9, left=left)
    assert batch["input_ids"].tolist()[:2] == expected
    assert batch["attention_mask"].sum(1).tolist() == [2, 1, 3]


def test_labels_are_sorted_and_rounded() -> None:
    assert top_labels([0.1, 0.65432, 0.25], ["a", "b", "c"], 2) == [
        {"label": "b", "score": 0.6543},
        {"label": "c", "score": 0.25},
    ]


def test_scores_that_are_not_finite_fail_the_model() -> None:
    with pytest.raises(ModelFailed):
        top_labels([float("nan"), 0.5], ["a", "b"])


def test_largest_memory_is_that_of_the_largest_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda index: SimpleNamespace(total=(8, 24)[index]),
    }.items():
        monkeypatch.setattr(pynvml, name, value)
    assert TorchDevices().largest_memory() == 24


def test_machine_without_a_gpu_has_no_memory_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert TorchDevices().largest_memory() == 0


def test_full_gpu_is_reported_in_plain_text() -> None:
    with pytest.raises(OutOfMemory), inference_context("org/name"):
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Driver library of a machine with two GPUs; the second has a utilization of 37 %."""
    monkeypatch.setattr("pynvml.nvmlInit", lambda: None)
    monkeypatch.setattr("pynvml.nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr("pynvml.nvmlDeviceGetUtilizationRates", lambda handle: SimpleNamespace(gpu=37 * handle))
    return monkeypatch


def test_gpu_utilization_is_read_from_the_driver(driver: pytest.MonkeyPatch) -> None:
    devices = TorchDevices()
    assert [devices.utilization(device) for device in ("cuda:0", "cuda:1", "cpu")] == [0, 0.37, None]


@pytest.mark.parametrize(
    "error", [pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED), ModuleNotFoundError("amdsmi is not installed")]
)
def test_gpu_utilization_is_unknown_without_driver_support(driver: pytest.MonkeyPatch, error: Exception) -> None:
    def raise_error(handle: int) -> None:
        raise error

    driver.setattr("pynvml.nvmlDeviceGetUtilizationRates", raise_error)
    assert TorchDevices().utilization("cuda:0") is None


def test_missing_device_error_names_the_present_ones() -> None:
    cpu = find_device("cpu")
    assert select_dtype(cpu, "") == torch.float32
    assert select_dtype(cpu, "bfloat16") == torch.bfloat16
    with pytest.raises(FailedPrecondition) as caught:
        find_device("cuda:99")
    assert caught.value.reason == "LOAD_FAILED"
    assert "cpu" in caught.value.remedy


@pytest.mark.parametrize(("capability", "dtype"), [((9, 0), torch.bfloat16), ((7, 5), torch.float16)])
def test_gpu_weights_use_half_precision(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: Any
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
    assert select_dtype(torch.device("cuda:0"), "") == dtype
    assert select_dtype(torch.device("cuda:0"), "float32") == torch.float32


def test_gradients_are_disabled() -> None:
    layer: Any = torch.nn.Linear(2, 2)
    with inference_context("org/name"):
        assert not layer(torch.ones(1, 2)).requires_grad


@pytest.fixture(scope="module")
def language_model() -> Any:
    """An untrained language model that never generates the end token."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}
    config = transformers.LlamaConfig(vocab_size=50, **sizes, num_key_value_heads=1, eos_token_id=None)
    return transformers.LlamaForCausalLM(config).eval()


def prompt(*rows: list[int]) -> dict[str, Any]:
    return pad_rows([{"input_ids": row, "attention_mask": [1] * len(row)} for row in rows], 0, left=True)


def test_generated_text_excludes_the_prompt(language_model: Any) -> None:
    direct = language_model.generate(**prompt([3, 4, 5]), max_new_tokens=8, do_sample=False, pad_token_id=0)[
        0, 3:
    ].tolist()
    assert generate_tokens(language_model, prompt([3, 4, 5]), FakeCall(), max_new_tokens=8, pad_token_id=0) == [direct]
    both = generate_tokens(language_model, prompt([3, 4, 5], [7] * 9), FakeCall(), max_new_tokens=8, pad_token_id=0)
    assert both[0] == direct


def test_cancelled_call_stops_generating(language_model: Any) -> None:
    (tokens,) = generate_tokens(language_model, prompt([3]), FakeCall(checks=3), max_new_tokens=40, pad_token_id=0)
    assert len(tokens) == 4


def test_seeded_sample_is_independent_of_its_batch(language_model: Any) -> None:
    def sampled(*rows: list[int]) -> list[list[int]]:
        sampling = Sampling(temperature=1.0, seed=5)
        return generate_tokens(
            language_model, prompt(*rows), FakeCall(), max_new_tokens=12, sampling=sampling, pad_token_id=0
        )

    (alone,) = sampled([3, 4])
    torch.manual_seed(99)
    assert sampled([9, 9, 9, 9], [3, 4])[1] == alone
    assert sampled([3, 4])[0] == alone
