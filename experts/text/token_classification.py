"""Words that name something, found by a model that labels tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import Reader, Window
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS, label_names, to_probabilities
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.torch_handler import TorchHandler

OUTSIDE = "O"

Span = tuple[int, int]


@dataclass(frozen=True)
class Text:
    """One caller's text."""

    text: str
    windows: list[Window]


@dataclass(frozen=True)
class Word:
    """A word, and what each label scores for it."""

    start: int
    end: int
    scores: list[float]

    @property
    def best(self) -> int:
        return max(range(len(self.scores)), key=self.scores.__getitem__)


def token_classification(model_id: str, device: str) -> Handler:
    """Any model with a head for tokens."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    model = checkpoint.model(AutoModelForTokenClassification)
    return Tagger(checkpoint, model, Reader(tokenizer, model, model_id))


class Tagger(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, reader: Reader) -> None:
        super().__init__(checkpoint, model)
        self._reader, self._labels = reader, label_names(model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Text:  # noqa: ARG002  # it has none
        return Text(inputs["text"], self._reader.windows(inputs["text"]))

    def cost(self, item: Text) -> float:
        return sum(window.length for window in item.windows)

    def run(self, items: Sequence[Text], call: Call) -> list[tuple[list[list[list[float]]], Text]]:
        def compute(windows: Sequence[Window]) -> list[list[list[float]]]:
            batch = pad_rows([window.row for window in windows], self._reader.pad_id)
            with inference_context(self.model_id):
                logits = require_finite(self.model(**move_to_device(batch, self.model)).logits, self.model_id)
            return [to_probabilities(row[: window.length]) for row, window in zip(logits, windows, strict=True)]

        scores = run_in_passes([item.windows for item in items], lambda window: window.length, compute, call)
        return list(zip(scores, items, strict=False))

    def finish(self, raw: tuple[list[list[list[float]]], Text]) -> Outputs:
        scores, item = raw
        found = [
            {
                "entity": name,
                "text": item.text[start:end],
                "score": round(score, DIGITS),
                "start": start,
                "end": end,
            }
            for name, score, (start, end) in _entities(_words(item, scores), self._labels)
        ]
        lines = [f"{one['entity']}: {one['text']}" for one in found]
        return {"entities": found, "text": "\n".join(lines) or "No entities."}


def _words(item: Text, scores: Sequence[Sequence[Sequence[float]]]) -> list[Word]:
    """The words of a text in order; each as the window saw it in which it has most around it."""
    chosen: dict[int, tuple[int, Word]] = {}
    for window, rows in zip(item.windows, scores, strict=True):
        tokens = [place for place, word in enumerate(window.words) if word is not None]
        for _, group in groupby(tokens, key=lambda place: window.words[place]):
            places = list(group)
            word = _word(item.text, window, places, rows)
            around = min(places[0] - tokens[0], tokens[-1] - places[-1])
            if word and (word.start not in chosen or around > chosen[word.start][0]):
                chosen[word.start] = around, word
    return _apart(word for _, (_, word) in sorted(chosen.items()))


def _word(text: str, window: Window, places: Sequence[int], rows: Sequence[Sequence[float]]) -> Word | None:
    start, end = window.offsets[places[0]][0], window.offsets[places[-1]][1]
    start += len(text[start:end]) - len(text[start:end].lstrip())
    if start >= end:
        return None
    columns = zip(*(rows[place] for place in places), strict=True)
    return Word(start, end, [sum(column) / len(places) for column in columns])


def _apart(words: Iterator[Word]) -> list[Word]:
    """Without words that a window's edge cut out of another."""
    kept: list[Word] = []
    for word in words:
        if kept and word.start < kept[-1].end:
            if word.end - word.start > kept[-1].end - kept[-1].start:
                kept[-1] = word
        else:
            kept.append(word)
    return kept


def _entities(words: Sequence[Word], labels: Sequence[str]) -> Iterator[tuple[str, float, Span]]:
    """Neighbours of one kind are one entity, unless the label says that another begins."""
    for group in _groups(words, labels):
        scores = [word.scores[word.best] for word in group]
        yield _kind(labels[group[0].best]), sum(scores) / len(scores), (group[0].start, group[-1].end)


def _groups(words: Sequence[Word], labels: Sequence[str]) -> Iterator[list[Word]]:
    group: list[Word] = []
    for word in words:
        label = labels[word.best]
        goes_on = (
            bool(group) and _kind(label) == _kind(labels[group[-1].best]) and not label.startswith(("B-", "S-", "U-"))
        )
        if group and not goes_on:
            yield group
            group = []
        if label != OUTSIDE:
            group.append(word)
    if group:
        yield group


def _kind(label: str) -> str:
    """PER of B-PER; a label without a scheme is its own kind."""
    prefix, dash, kind = label.partition("-")
    return kind if dash and len(prefix) == 1 else label
