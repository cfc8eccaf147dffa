"""Attention kernels and TF32 of torch models."""

from pathlib import Path
from typing import Any

import pytest

from experts.torch_host import tf32
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.tf32 import choose_tf32
from services.common.errors import FailedPrecondition

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def checkpoint(folder: Path, attention: str) -> Checkpoint:
    return Checkpoint("org/name", folder, "", torch.device("cpu"), torch.float32, attention)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes)).save_pretrained(path)
    return path


@pytest.mark.parametrize(("chosen", "kernel"), [("eager", "eager"), ("", "sdpa")])
def test_model_uses_the_chosen_attention_kernel(folder: Path, chosen: str, kernel: str) -> None:
    model: Any = checkpoint(folder, chosen).model(transformers.BertModel)
    assert model.config._attn_implementation == kernel  # transformers has no public name for it


def test_attention_kernel_that_is_not_installed_fails_the_load(folder: Path) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        checkpoint(folder, "flash_attention_2").model(transformers.BertModel)
    assert caught.value.reason == "LOAD_FAILED"
    assert "org/name" in caught.value.message


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Torch's switches, restored after the test, in a process where no model has chosen."""
    monkeypatch.setattr(tf32, "_choices", {})
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
    before = [switch.fp32_precision for switch in switches]
    yield switches
    for switch, precision in zip(switches, before, strict=True):
        switch.fp32_precision = precision


@pytest.mark.parametrize(("enabled", "precision"), [(True, "tf32"), (False, "ieee")])
def test_choice_of_tf32_sets_every_kind_of_product(process: Any, *, enabled: bool, precision: str) -> None:
    choose_tf32("org/one", enabled=enabled)
    choose_tf32("org/two", enabled=enabled)
    assert {switch.fp32_precision for switch in process} == {precision}


def test_contrary_choice_of_tf32_is_refused(process: Any) -> None:
    choose_tf32("org/one", enabled=True)
    with pytest.raises(FailedPrecondition, match=r"cannot load org/two: its card disables TF32, and org/one") as caught:
        choose_tf32("org/two", enabled=False)
    assert caught.value.reason == "LOAD_FAILED"
    assert "EXPERT_TF32" in caught.value.remedy
    assert {switch.fp32_precision for switch in process} == {"tf32"}
