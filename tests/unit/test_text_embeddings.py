"""Pooling, prompts and dense layers of encoders, as configured in the files of sentence-transformers."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from experts.text.embeddings import _pool, feature_extraction, sentence_similarity
from experts.text.sentence_transformers import read_modules
from experts.torch_host.checkpoint import Checkpoint
from services.common.errors import FailedPrecondition
from tests.tiny import TinyModels

pytestmark = pytest.mark.slow


def checkpoint(folder: Path, pooling: object = None, modules: object = None) -> Checkpoint:
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    if modules is not None:
        (folder / "modules.json").write_text(json.dumps(modules))
    return Checkpoint("org/name", folder, "", torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (None, "mean"),
        ({"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "include_prompt": True}, "cls"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_lasttoken": True}, "last"),
    ],
    ids=range(5),
)
def test_pooling_is_read_from_the_repository(tmp_path: Path, pooling: object, expected: str) -> None:
    assert read_modules(checkpoint(tmp_path, pooling)).pooling == expected


@pytest.mark.parametrize(
    ("pooling", "modules"),
    [
        ({"pooling_mode_weightedmean_tokens": True}, None),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, None),
        (None, [{"type": "sentence_transformers.models.LSTM"}]),
        (None, [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]),
    ],
    ids=range(4),
)
def test_unsupported_pooling_fails_to_load(tmp_path: Path, pooling: object, modules: object) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        read_modules(checkpoint(tmp_path, pooling, modules))
    assert caught.value.reason == "LOAD_FAILED"


@pytest.mark.parametrize(
    ("pooling", "expected"), [("mean", [3.0, 4.0]), ("cls", [0.0, 1.0]), ("max", [6.0, 7.0]), ("last", [6.0, 7.0])]
)
def test_pooling_ignores_padding(pooling: str, expected: list[float]) -> None:
    hidden = torch.tensor([[[0.0, 1.0], [6.0, 7.0], [99.0, 99.0]]])
    vector = _pool(hidden, torch.tensor([[1, 1, 0]]), pooling)[0]
    assert vector.tolist() == pytest.approx(expected)


class ActiveCall:
    cancelled = False

    def progress(self, fraction: float, message: str = "") -> None:
        """Ignores progress."""


def embed(handler: Any, text: str) -> list[float]:
    item = handler.prepare({"text": text}, {})
    vector: list[float] = handler.finish(handler.run([item], ActiveCall())[0])["embedding"]
    return vector


def similarity(handler: Any, text: str, other: str) -> float:
    item = handler.prepare({"text": text, "sentences": [other]}, {})
    score: float = handler.finish(handler.run([item], ActiveCall())[0])["scores"][0]
    return score


PROMPTS = {"prompts": {"query": "the film ", "document": "a dull "}, "default_prompt_name": None}


@pytest.fixture
def repository(tiny_models: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the tiny encoder, to which a test adds files."""
    copy = tmp_path / "org" / "encoder"
    shutil.copytree(tiny_models.build("text", "tiny/embedder"), copy)
    monkeypatch.setenv("EXPERT_MODELS_URL", str(tmp_path))
    return copy


def test_texts_have_the_prompt_for_documents(repository: Path) -> None:
    plain = embed(feature_extraction("org/encoder", "cpu"), "a dull evening")
    (repository / "config_sentence_transformers.json").write_text(json.dumps(PROMPTS))
    assert embed(feature_extraction("org/encoder", "cpu"), "evening") == plain


def test_each_window_of_a_long_text_has_the_prompt(repository: Path) -> None:
    (repository / "config_sentence_transformers.json").write_text(json.dumps(PROMPTS))
    handler: Any = feature_extraction("org/encoder", "cpu")
    windows = handler.prepare({"text": "great evening " * 40}, {}).windows[0]
    first = windows[0].row["input_ids"][1:3]
    assert len(windows) > 2
    assert [window.row["input_ids"][1:3] for window in windows] == [first] * len(windows)
    assert max(window.length for window in windows) <= 32


def test_equal_texts_have_similarity_1_with_prompts(repository: Path) -> None:
    (repository / "config_sentence_transformers.json").write_text(json.dumps(PROMPTS))
    assert similarity(sentence_similarity("org/encoder", "cpu"), "evening", "evening") == 1.0


def test_dense_layer_follows_the_pooling(repository: Path) -> None:
    pooled = torch.tensor(embed(feature_extraction("org/encoder", "cpu"), "evening"))
    weight = torch.randn(6, len(pooled), generator=torch.Generator().manual_seed(0))
    (repository / "2_Dense").mkdir()
    activation = "torch.nn.modules.linear.Identity"
    config = {"in_features": len(pooled), "out_features": 6, "bias": False, "activation_function": activation}
    (repository / "2_Dense/config.json").write_text(json.dumps(config))
    save_file({"linear.weight": weight}, repository / "2_Dense/model.safetensors")
    modules = [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
    modules.append({"type": "sentence_transformers.models.Dense", "path": "2_Dense"})
    (repository / "modules.json").write_text(json.dumps(modules))
    expected = torch.nn.functional.normalize(weight @ pooled, dim=0)
    assert embed(feature_extraction("org/encoder", "cpu"), "evening") == pytest.approx(expected.tolist(), abs=1e-4)
