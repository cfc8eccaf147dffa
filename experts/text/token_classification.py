"""Token classification: named entities, with their positions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import Window, WindowTokenizer
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS, label_names, to_probabilities
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from experts.torch_host.padding import launch_passes, pad_rows
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host

if TYPE_CHECKING:
    import torch

OUTSIDE = "O"

Span = tuple[int, int]


@dataclass(frozen=True)
class TaggingItem:
    """Text of one call."""

    text: str
    windows: list[Window]


@dataclass(frozen=True)
class Word:
    """Word at a position of the text, with a score for each label."""

    start: int
    end: int
    scores: list[float]

    @property
    def best_index(self) -> int:
        return max(range(len(self.scores)), key=self.scores.__getitem__)


def token_classification(model_id: str, device: str) -> Handler:
    """Loads a model with a head for tokens."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    model = checkpoint.model(AutoModelForTokenClassification)
    return TokenClassifier(checkpoint, model, WindowTokenizer(tokenizer, model, model_id))


class TokenClassifier(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, window_tokenizer: WindowTokenizer) -> None:
        super().__init__(checkpoint, model)
        self._window_tokenizer, self._labels = window_tokenizer, label_names(model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> TaggingItem:  # noqa: ARG002  # the task has none
        return TaggingItem(inputs["text"], self._window_tokenizer.split(inputs["text"]))

    def cost(self, item: TaggingItem) -> float:
        return sum(window.length for window in item.windows)

    def compute(self, items: Sequence[TaggingItem], call: Call) -> ReadResults:
        def forward(windows: Sequence[Window]) -> "torch.Tensor":
            batch = pad_rows([window.row for window in windows], self._window_tokenizer.pad_id)
            with inference_context(self.model_id):
                return copy_to_host(self.model(**move_to_device(batch, self.model)).logits)

        def read_pass(windows: Sequence[Window], logits: "torch.Tensor") -> list[list[list[float]]]:
            rows = zip(require_finite(logits, self.model_id), windows, strict=True)
            return [to_probabilities(row[: window.length]) for row, window in rows]

        windows = [item.windows for item in items]
        passes = launch_passes(windows, lambda window: window.length, forward, call, max_tokens=self.max_pass_tokens)
        return lambda: list(zip(passes.read(read_pass), items, strict=False))

    def finish(self, raw: tuple[list[list[list[float]]], TaggingItem]) -> Outputs:
        scores, item = raw
        entities = [
            {
                "entity": name,
                "text": item.text[start:end],
                "score": round(score, DIGITS),
                "start": start,
                "end": end,
            }
            for name, score, (start, end) in _merge_entities(_collect_words(item, scores), self._labels)
        ]
        lines = [f"{entity['entity']}: {entity['text']}" for entity in entities]
        return {"entities": entities, "text": "\n".join(lines) or "No entities."}


def _collect_words(item: TaggingItem, scores: Sequence[Sequence[Sequence[float]]]) -> list[Word]:
    """Returns the words of a text in order, each with the scores of the window in which it is farthest from an edge."""
    chosen: dict[int, tuple[int, Word]] = {}
    for window, rows in zip(item.windows, scores, strict=True):
        tokens = [index for index, word in enumerate(window.words) if word is not None]
        for _, group in groupby(tokens, key=lambda index: window.words[index]):
            indices = list(group)
            word = _merge_tokens(item.text, window, indices, rows)
            distance = min(indices[0] - tokens[0], tokens[-1] - indices[-1])
            if word and (word.start not in chosen or distance > chosen[word.start][0]):
                chosen[word.start] = distance, word
    return _remove_overlaps(word for _, (_, word) in sorted(chosen.items()))


def _merge_tokens(text: str, window: Window, indices: Sequence[int], rows: Sequence[Sequence[float]]) -> Word | None:
    start, end = window.offsets[indices[0]][0], window.offsets[indices[-1]][1]
    start += len(text[start:end]) - len(text[start:end].lstrip())
    if start >= end:
        return None
    columns = zip(*(rows[index] for index in indices), strict=True)
    return Word(start, end, [sum(column) / len(indices) for column in columns])


def _remove_overlaps(words: Iterator[Word]) -> list[Word]:
    """Removes fragments of words that were cut at a window's edge."""
    separate: list[Word] = []
    for word in words:
        if separate and word.start < separate[-1].end:
            if word.end - word.start > separate[-1].end - separate[-1].start:
                separate[-1] = word
        else:
            separate.append(word)
    return separate


def _merge_entities(words: Sequence[Word], labels: Sequence[str]) -> Iterator[tuple[str, float, Span]]:
    """Yields type, score and span of each entity: adjacent words of one type, split where a label begins a new one."""
    for group in _group_words(words, labels):
        scores = [word.scores[word.best_index] for word in group]
        yield _entity_type(labels[group[0].best_index]), sum(scores) / len(scores), (group[0].start, group[-1].end)


def _group_words(words: Sequence[Word], labels: Sequence[str]) -> Iterator[list[Word]]:
    group: list[Word] = []
    for word in words:
        label = labels[word.best_index]
        continues = (
            bool(group)
            and _entity_type(label) == _entity_type(labels[group[-1].best_index])
            and not label.startswith(("B-", "S-", "U-"))
        )
        if group and not continues:
            yield group
            group = []
        if label != OUTSIDE:
            group.append(word)
    if group:
        yield group


def _entity_type(label: str) -> str:
    """Returns the label without its scheme prefix: PER for B-PER and PER."""
    prefix, separator, entity_type = label.partition("-")
    return entity_type if separator and len(prefix) == 1 else label
