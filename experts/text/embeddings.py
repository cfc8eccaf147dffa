"""Embeddings of texts, and their similarity."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.sentence_transformers import EmbeddingModules, read_modules
from experts.text.token_windows import Window, WindowTokenizer, weighted_mean
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import launch_passes, pad_rows
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host
from experts.torch_host.weight_checks import POOLER

if TYPE_CHECKING:
    import torch

_VECTOR_DIGITS = 6
_PROMPT_MARGIN = 8
"""Tokens by which a text with its prompt may exceed the sum of both: some tokens depend on what precedes them."""

Vector = list[float]


def feature_extraction(model_id: str, device: str) -> Handler:
    """Loads an encoder; its tokens are pooled as its repository states, else by their mean.

    Texts have the repository's prompt for documents, if it has one.
    """
    return FeatureExtractor(*_load(model_id, device, "document", "passage"))


def sentence_similarity(model_id: str, device: str) -> Handler:
    """Loads an encoder; similarity is the cosine between its vectors.

    All texts have the same prompt, if the repository has one for similarity or queries: equal texts score 1.
    """
    return SimilarityScorer(*_load(model_id, device, "STS", "query"))


@dataclass(frozen=True)
class EmbeddingItem:
    """Texts of one call with their windows."""

    texts: list[str]
    windows: list[list[Window]]


class PromptedTokenizer:
    """Splits texts into windows, each of which begins with the prompt."""

    def __init__(self, tokenizer: Any, model: Any, model_id: str, max_tokens: int | None, prompt: str) -> None:
        self._prompt = prompt
        self._whole = WindowTokenizer(tokenizer, model, model_id, recommended_tokens=max_tokens)
        self._parts = self._whole
        if prompt:
            limit = self._whole.max_tokens - self._whole.count(prompt) - _PROMPT_MARGIN
            self._parts = WindowTokenizer(tokenizer, model, model_id, recommended_tokens=max(limit, _PROMPT_MARGIN))
        self.pad_id = self._whole.pad_id

    def split(self, text: str, port: str = "text") -> list[Window]:
        """Splits a text into windows.

        Raises:
            InvalidRequest: TOO_LARGE, naming the port.
        """
        parts = self._parts.split(text, port=port)
        if not self._prompt:
            return parts
        spans = [
            [offset for offset, word in zip(part.offsets, part.words, strict=True) if word is not None] or [(0, 0)]
            for part in parts
        ]
        texts = [text[span[0][0] : span[-1][1]] for span in spans]
        return [window for part in texts for window in self._whole.split(self._prompt + part, port=port)]


class Embedder(TorchHandler):
    """Base class of both tasks: computes the vector of each text."""

    def __init__(
        self, checkpoint: Checkpoint, model: Any, window_tokenizer: PromptedTokenizer, modules: EmbeddingModules
    ) -> None:
        super().__init__(checkpoint, model)
        self._window_tokenizer, self._modules = window_tokenizer, modules

    def cost(self, item: EmbeddingItem) -> float:
        return sum(window.length for windows in item.windows for window in windows)

    def compute(self, items: Sequence[EmbeddingItem], call: Call) -> ReadResults:
        import torch

        def forward(windows: Sequence[Window]) -> "torch.Tensor":
            batch = move_to_device(
                pad_rows([window.row for window in windows], self._window_tokenizer.pad_id), self.model
            )
            with inference_context(self.model_id):
                hidden = self.model(**batch).last_hidden_state.float()
                vectors = _pool(hidden, batch["attention_mask"], self._modules.pooling)
                for layer in self._modules.layers:
                    vectors = layer(vectors)
                return copy_to_host(torch.nn.functional.normalize(vectors, dim=-1))

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


def _load(model_id: str, device: str, *purposes: str) -> tuple[Checkpoint, Any, PromptedTokenizer, EmbeddingModules]:
    from transformers import AutoModel, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    modules = read_modules(checkpoint)
    model = checkpoint.model(AutoModel, unused=[POOLER])
    prompted = PromptedTokenizer(tokenizer, model, model_id, modules.max_tokens, modules.find_prompt(*purposes))
    return checkpoint, model, prompted, modules


def _pool(hidden: "torch.Tensor", mask: "torch.Tensor", pooling: str) -> "torch.Tensor":
    """Pools the tokens of each row to one vector."""
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
    return pooled


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
