"""Texts as vectors of their meaning, and how close these are."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import Reader, Window, mean
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    import torch

_VECTOR_DIGITS = 6
_POOLING = "1_Pooling/config.json"
"""Where sentence-transformers says how the vectors of tokens become one."""
_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_PARTS = {"Transformer", "Pooling", "Normalize"}

Vector = list[float]


def feature_extraction(model_id: str, device: str) -> Handler:
    """Any encoder; pooled as its makers say, else by the mean of its tokens."""
    return Extractor(*_loaded(model_id, device))


def sentence_similarity(model_id: str, device: str) -> Handler:
    """The same encoders: the cosine between their vectors."""
    return Comparer(*_loaded(model_id, device))


@dataclass(frozen=True)
class Texts:
    """One caller's texts, each in its windows."""

    texts: list[str]
    windows: list[list[Window]]


class Embedder(TorchHandler):
    """What both tasks have in common."""

    def __init__(self, checkpoint: Checkpoint, model: Any, reader: Reader, pooling: str) -> None:
        super().__init__(checkpoint, model)
        self._reader, self._pooling = reader, pooling

    def cost(self, item: Texts) -> float:
        return sum(window.length for windows in item.windows for window in windows)

    def run(self, items: Sequence[Texts], call: Call) -> list[tuple[list[Vector], Texts]]:
        def compute(windows: Sequence[Window]) -> list[Vector]:
            batch = move_to_device(pad_rows([window.row for window in windows], self._reader.pad_id), self.model)
            with inference_context(self.model_id):
                hidden = self.model(**batch).last_hidden_state.float()
                vectors: list[Vector] = _pooled(hidden, batch["attention_mask"], self._pooling).tolist()
            return vectors

        flat = [[window for windows in item.windows for window in windows] for item in items]
        found = run_in_passes(flat, lambda window: window.length, compute, call)
        return [(_of_texts(item, vectors), item) for item, vectors in zip(items, found, strict=False)]


class Extractor(Embedder):
    def prepare(self, inputs: Inputs, parameters: Parameters) -> Texts:  # noqa: ARG002  # it has none
        return Texts([inputs["text"]], [self._reader.windows(inputs["text"])])

    def finish(self, raw: tuple[list[Vector], Texts]) -> Outputs:
        (vector,), _ = raw
        return {"embedding": [round(value, _VECTOR_DIGITS) for value in vector]}


class Comparer(Embedder):
    def prepare(self, inputs: Inputs, parameters: Parameters) -> Texts:  # noqa: ARG002  # it has none
        windows = [self._reader.windows(text, port="sentences") for text in inputs["sentences"]]
        return Texts([inputs["text"], *inputs["sentences"]], [self._reader.windows(inputs["text"]), *windows])

    def finish(self, raw: tuple[list[Vector], Texts]) -> Outputs:
        (vector, *others), item = raw
        scores = [round(min(max(_cosine(vector, other), 0.0), 1.0), DIGITS) for other in others]
        closest = max(range(len(scores)), key=scores.__getitem__)
        return {"scores": scores, "text": f"{item.texts[closest + 1]} ({scores[closest]})"}


def _loaded(model_id: str, device: str) -> tuple[Checkpoint, Any, Reader, str]:
    from transformers import AutoModel, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    model = checkpoint.model(AutoModel)
    pooling, most = _pooling_of(checkpoint), _said(checkpoint, "sentence_bert_config.json").get("max_seq_length")
    return checkpoint, model, Reader(tokenizer, model, model_id, most=most), pooling


def _pooling_of(checkpoint: Checkpoint) -> str:
    """One of mean, cls, max and last.

    Raises:
        FailedPrecondition: LOAD_FAILED, its makers ask for another one, or for more.
    """
    parts = {str(part["type"]).rpartition(".")[2] for part in _said(checkpoint, "modules.json", [])}
    pooling = _said(checkpoint, _POOLING)
    modes = sorted(key for key, value in pooling.items() if key.startswith("pooling_mode_") and value is True)
    unknown = sorted(parts - _PARTS) or [mode for mode in modes if mode not in _MODES] or modes[1:]
    if unknown:
        raise FailedPrecondition(
            f"{checkpoint.model_id} makes its vectors with {unknown[0]}, which is not done here",
            reason="LOAD_FAILED",
            remedy="take a model that pools the vectors of its tokens in one way and does no more",
        )
    return _MODES[modes[0]] if modes else "mean"


def _said(checkpoint: Checkpoint, name: str, absent: Any = None) -> Any:
    """What a file of sentence-transformers says."""
    file = checkpoint.folder / name
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else ({} if absent is None else absent)


def _pooled(hidden: "torch.Tensor", mask: "torch.Tensor", pooling: str) -> "torch.Tensor":
    """One vector of length 1 for each row."""
    import torch

    kept = mask.unsqueeze(-1).to(hidden)
    if pooling == "cls":
        pooled = hidden[:, 0]
    elif pooling == "max":
        pooled = hidden.masked_fill(kept == 0, -torch.inf).amax(1)
    elif pooling == "last":
        pooled = hidden[torch.arange(len(hidden)), mask.sum(1) - 1]
    else:
        pooled = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1)
    return torch.nn.functional.normalize(pooled, dim=-1)


def _of_texts(item: Texts, vectors: Sequence[Vector]) -> list[Vector]:
    """The vector of each text: that of its window, or the direction of the mean of its windows'."""
    rest, found = iter(vectors), []
    for windows in item.windows:
        rows = [next(rest) for _ in windows]
        found.append(rows[0] if len(rows) == 1 else _unit(mean(rows, [window.length for window in windows])))
    return found


def _unit(vector: Vector) -> Vector:
    norm = math.sqrt(math.fsum(value * value for value in vector)) or 1.0
    return [value / norm for value in vector]


def _cosine(one: Vector, other: Vector) -> float:
    """Of vectors of length 1."""
    return math.fsum(a * b for a, b in zip(one, other, strict=True))
