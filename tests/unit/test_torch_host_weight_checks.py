"""Checkpoints that lack weights of the class that they are loaded into, and tokenizers that differ from their file."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    PreTrainedTokenizerFast,
    T5Tokenizer,
)

from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.pipelines import load_components
from experts.torch_host.weight_checks import POOLER
from services.common.errors import FailedPrecondition
from tests.tiny import TinyModels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]

SIZES: Any = {
    "vocab_size": 16,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}


def checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint("org/name", folder, "", torch.device("cpu"), torch.float32)


def refusal(folder: Path, kind: Any) -> str:
    with pytest.raises(FailedPrecondition) as caught:
        checkpoint(folder).model(kind)
    assert caught.value.reason == "LOAD_FAILED"
    return caught.value.message


def test_checkpoint_without_the_head_of_the_task_is_refused(tmp_path: Path) -> None:
    BertForMaskedLM(BertConfig(**SIZES)).save_pretrained(tmp_path)
    message = refusal(tmp_path, AutoModelForSequenceClassification)
    assert "they lack bert.pooler.dense.bias and 3 more, which BertForSequenceClassification needs" in message


def test_checkpoint_with_a_head_of_another_shape_is_refused(tmp_path: Path) -> None:
    BertForSequenceClassification(BertConfig(**{**SIZES, "num_labels": 3})).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    labels = {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}}
    (tmp_path / "config.json").write_text(json.dumps({**config, **labels}))
    message = refusal(tmp_path, AutoModelForSequenceClassification)
    assert "classifier.bias has the shape 3; BertForSequenceClassification needs 2" in message


def test_missing_pooler_is_allowed_for_loaders_that_do_not_use_it(tmp_path: Path) -> None:
    BertModel(BertConfig(**SIZES), add_pooling_layer=False).save_pretrained(tmp_path)
    assert checkpoint(tmp_path).model(AutoModel, unused=[POOLER]).config.hidden_size == 8
    assert "pooler.dense.bias" in refusal(tmp_path, AutoModel)


def test_weights_of_another_head_are_ignored(tmp_path: Path) -> None:
    BertForMaskedLM(BertConfig(**SIZES)).save_pretrained(tmp_path)
    assert isinstance(checkpoint(tmp_path).model(AutoModel, unused=[POOLER]), BertModel)


def test_pipeline_whose_component_lacks_weights_is_refused(tiny_models: TinyModels, tmp_path: Path) -> None:
    source = tiny_models.build("diffusion", "tiny/sd")
    for path in source.rglob("*"):
        if path.is_file():
            (tmp_path / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path.relative_to(source)).write_bytes(path.read_bytes())
    weights = tmp_path / "unet" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(weights)
    del tensors["conv_out.bias"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(FailedPrecondition, match=r"they lack conv_out\.bias, which UNet2DConditionModel needs"):
        load_components(checkpoint(tmp_path))


def build_tokenizer(folder: Path) -> Tokenizer:
    """Saves a tokenizer.json with byte fallback, whose unknown token is not at T5's position."""
    pieces = ["<pad>", "</s>", "<s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b"]
    backend = Tokenizer(
        models.Unigram([(piece, -float(index)) for index, piece in enumerate(pieces)], unk_id=3, byte_fallback=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "tokenizer_class": "T5Tokenizer"}))
    return backend


def test_tokenizer_file_is_preferred_to_a_class_that_divides_texts_otherwise(tmp_path: Path) -> None:
    stated = build_tokenizer(tmp_path)
    text = "a 𓀀"
    expected = stated.encode(text).ids
    assert T5Tokenizer.from_pretrained(tmp_path)(text, add_special_tokens=False).input_ids != expected
    loaded = checkpoint(tmp_path).processor(T5Tokenizer)
    assert loaded(text, add_special_tokens=False).input_ids == expected


def test_tokenizer_class_that_agrees_with_its_file_is_retained(tiny_models: TinyModels) -> None:
    folder = tiny_models.build("text", "tiny/sentiment")
    assert isinstance(checkpoint(folder).processor(AutoTokenizer), BertTokenizer)
