"""Embeddings of texts, and their similarity."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import Window, WindowTokenizer, weighted_mean
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import launch_passes, pad_rows
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host
from experts.torch_host.weight_checks import POOLER
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    import torch

_VECTOR_DIGITS = 6
_POOLING_FILE = "1_Pooling/config.json"
"""File in which sentence-transformers states how the vectors of tokens are pooled."""
_POOLING_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_SUPPORTED_MODULES = {"Transformer", "Pooling", "Normalize"}

Vector = list[float]


def feature_extraction(model_id: str, device: str) -> Handler:
    """Loads an encoder; its tokens are pooled as its repository states, else by their mean."""
    return FeatureExtractor(*_load(model_id, device))


def sentence_similarity(model_id: str, device: str) -> Handler:
    """Loads an encoder; similarity is the cosine between its vectors."""
    return SimilarityScorer(*_load(model_id, device))


@dataclass(frozen=True)
class EmbeddingItem:
    """Texts of one call with their windows."""

    texts: list[str]
    windows: list[list[Window]]


class Embedder(TorchHandler):
    """Base class of both tasks: computes the vector of each text."""

    def __init__(self, checkpoint: Checkpoint, model: Any, window_tokenizer: WindowTokenizer, pooling: str) -> None:
        super().__init__(checkpoint, model)
        self._window_tokenizer, self._pooling = window_tokenizer, pooling

    def cost(self, item: EmbeddingItem) -> float:
        return sum(window.length for windows in item.windows for window in windows)

    def compute(self, items: Sequence[EmbeddingItem], call: Call) -> ReadResults:
        def forward(windows: Sequence[Window]) -> "torch.Tensor":
            batch = move_to_device(
                pad_rows([window.row for window in windows], self._window_tokenizer.pad_id), self.model
            )
            with inference_context(self.model_id):
                hidden = self.model(**batch).last_hidden_state.float()
                return copy_to_host(_pool(hidden, batch["attention_mask"], self._pooling))

        flat = [[window for windows in item.windows for window in windows] for item in items]
        passes = launch_passes(flat, lambda window: window.length, forward, call, max_tokens=self.max_pass_tokens)

        def read() -> list[tuple[list[Vector], EmbeddingItem]]:
            results: list[list[Vector]] = passes.read(lambda _, vectors: vectors.tolist())
            return [(_vectors_by_text(item, vectors), item) for item, vectors in zip(items, results, strict=False)]

        return read


class FeatureExtractor(Embedder):
    def prepare(self, inputs: Inputs, parameters: Parameters) -> EmbeddingItem:  # noqa: ARG002  # the task has none
        return EmbeddingItem([inputs["text"]], [self._window_tokenizer.split(inputs["text"])])

    def finish(self, raw: tuple[list[Vector], EmbeddingItem]) -> Outputs:
        (vector,), _ = raw
        return {"embedding": [round(value, _VECTOR_DIGITS) for value in vector]}


class SimilarityScorer(Embedder):
    def prepare(self, inputs: Inputs, parameters: Parameters) -> EmbeddingItem:  # noqa: ARG002  # the task has none
        windows = [self._window_tokenizer.split(text, port="sentences") for text in inputs["sentences"]]
        return EmbeddingItem(
            [inputs["text"], *inputs["sentences"]], [self._window_tokenizer.split(inputs["text"]), *windows]
        )

    def finish(self, raw: tuple[list[Vector], EmbeddingItem]) -> Outputs:
        (vector, *others), item = raw
        scores = [round(min(max(_cosine(vector, other), 0.0), 1.0), DIGITS) for other in others]
        closest = max(range(len(scores)), key=scores.__getitem__)
        return {"scores": scores, "text": f"{item.texts[closest + 1]} ({scores[closest]})"}


def _load(model_id: str, device: str) -> tuple[Checkpoint, Any, WindowTokenizer, str]:
    from transformers import AutoModel, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    model = checkpoint.model(AutoModel, unused=[POOLER])
    recommended = _read_json(checkpoint, "sentence_bert_config.json").get("max_seq_length")
    window_tokenizer = WindowTokenizer(tokenizer, model, model_id, recommended_tokens=recommended)
    return checkpoint, model, window_tokenizer, _read_pooling(checkpoint)


def _read_pooling(checkpoint: Checkpoint) -> str:
    """Returns the model's pooling: mean, cls, max or last.

    Raises:
        FailedPrecondition: LOAD_FAILED, the model needs another pooling, several, or further modules.
    """
    modules = {str(module["type"]).rpartition(".")[2] for module in _read_json(checkpoint, "modules.json", [])}
    pooling = _read_json(checkpoint, _POOLING_FILE)
    modes = sorted(key for key, value in pooling.items() if key.startswith("pooling_mode_") and value is True)
    unknown = (
        sorted(modules - _SUPPORTED_MODULES) or [mode for mode in modes if mode not in _POOLING_MODES] or modes[1:]
    )
    if unknown:
        raise FailedPrecondition(
            f"{checkpoint.model_id} computes its vectors with {unknown[0]}, which is not supported",
            reason="LOAD_FAILED",
            remedy="use a model with a single pooling (mean, cls, max or last token) and no further layers",
        )
    return _POOLING_MODES[modes[0]] if modes else "mean"


def _read_json(checkpoint: Checkpoint, name: str, default: Any = None) -> Any:
    """Reads a file of sentence-transformers; returns the default, or {}, if it does not exist."""
    file = checkpoint.folder / name
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else ({} if default is None else default)


def _pool(hidden: "torch.Tensor", mask: "torch.Tensor", pooling: str) -> "torch.Tensor":
    """Pools the tokens of each row to one vector of length 1."""
    import torch

    weights = mask.unsqueeze(-1).to(hidden)
    if pooling == "cls":
        pooled = hidden[:, 0]
    elif pooling == "max":
        pooled = hidden.masked_fill(weights == 0, -torch.inf).amax(1)
    elif pooling == "last":
        pooled = hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1) - 1]
    else:
        pooled = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
    return torch.nn.functional.normalize(pooled, dim=-1)


def _vectors_by_text(item: EmbeddingItem, vectors: Sequence[Vector]) -> list[Vector]:
    """Returns the vector of each text: that of its only window, or the normalized mean of its windows' vectors."""
    remaining, by_text = iter(vectors), []
    for windows in item.windows:
        rows = [next(remaining) for _ in windows]
        lengths = [window.length for window in windows]
        by_text.append(rows[0] if len(rows) == 1 else _normalize(weighted_mean(rows, lengths)))
    return by_text


def _normalize(vector: Vector) -> Vector:
    norm = math.sqrt(math.fsum(value * value for value in vector)) or 1.0
    return [value / norm for value in vector]


def _cosine(left: Vector, right: Vector) -> float:
    """Returns the cosine similarity of two vectors of length 1."""
    return math.fsum(a * b for a, b in zip(left, right, strict=True))
