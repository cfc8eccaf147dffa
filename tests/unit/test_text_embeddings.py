"""Pooling of token vectors, as configured in the files of sentence-transformers."""

import json
from pathlib import Path

import pytest
import torch

from experts.text.embeddings import _pool, _read_pooling
from experts.torch_host.checkpoint import Checkpoint
from services.common.errors import FailedPrecondition

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
    assert _read_pooling(checkpoint(tmp_path, pooling)) == expected


@pytest.mark.parametrize(
    ("pooling", "modules"),
    [
        ({"pooling_mode_weightedmean_tokens": True}, None),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, None),
        (None, [{"type": "sentence_transformers.models.Dense"}]),
    ],
    ids=range(3),
)
def test_unsupported_pooling_fails_to_load(tmp_path: Path, pooling: object, modules: object) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        _read_pooling(checkpoint(tmp_path, pooling, modules))
    assert caught.value.reason == "LOAD_FAILED"


@pytest.mark.parametrize(
    ("pooling", "expected"), [("mean", [3.0, 4.0]), ("cls", [0.0, 1.0]), ("max", [6.0, 7.0]), ("last", [6.0, 7.0])]
)
def test_pooling_ignores_padding(pooling: str, expected: list[float]) -> None:
    hidden = torch.tensor([[[0.0, 1.0], [6.0, 7.0], [99.0, 99.0]]])
    vector = _pool(hidden, torch.tensor([[1, 1, 0]]), pooling)[0]
    direction = torch.tensor(expected)
    assert vector.tolist() == pytest.approx((direction / direction.norm()).tolist())
