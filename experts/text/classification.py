"""Classes of a text: those a model was trained for, or those named in the request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.host.parameters import port_of
from experts.text.token_windows import Reader, Window, mean, too_long
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import is_multi_label, label_names, to_probabilities, top_labels
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import FailedPrecondition, InvalidRequest

HYPOTHESIS = "This example is {}."
_MOST_PAIRS = 512
"""Of windows and labels, where the text has more than one window."""


def text_classification(model_id: str, device: str) -> Handler:
    """Any model with a head for sequences."""
    checkpoint, tokenizer, model = _loaded(model_id, device)
    return Classifier(checkpoint, model, Reader(tokenizer, model, model_id))


def zero_shot_classification(model_id: str, device: str) -> Handler:
    """A model of natural language inference: whether a text entails that it is about a label.

    Raises:
        FailedPrecondition: LOAD_FAILED, the model does not know entailment.
    """
    checkpoint, tokenizer, model = _loaded(model_id, device)
    return ZeroShot(checkpoint, model, Reader(tokenizer, model, model_id))


@dataclass(frozen=True)
class Text:
    """One caller's text."""

    windows: list[Window]
    top_k: int


class Classifier(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, reader: Reader) -> None:
        super().__init__(checkpoint, model)
        self._reader, self._labels, self._several = reader, label_names(model.config), is_multi_label(model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Text:
        return Text(self._reader.windows(inputs["text"]), parameters["top_k"])

    def cost(self, item: Text) -> float:
        return sum(window.length for window in item.windows)

    def run(self, items: Sequence[Text], call: Call) -> list[tuple[list[float], int]]:
        def compute(windows: Sequence[Window]) -> list[list[float]]:
            return to_probabilities(_logits(self, windows, self._reader.pad_id), multi_label=self._several)

        scores = run_in_passes([item.windows for item in items], _length, compute, call)
        return [
            (mean(rows, [window.length for window in item.windows]), item.top_k)
            for rows, item in zip(scores, items, strict=False)
        ]

    def finish(self, raw: tuple[list[float], int]) -> Outputs:
        scores, top_k = raw
        labels = top_labels(scores, self._labels, top_k)
        return {"labels": labels, "text": labels[0]["label"]}


@dataclass(frozen=True)
class Labelled:
    """One caller's text with each of its labels."""

    pairs: list[list[Window]]
    """By label."""
    labels: list[str]
    several: bool

    @property
    def windows(self) -> list[Window]:
        return [window for pair in self.pairs for window in pair]


class ZeroShot(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, reader: Reader) -> None:
        super().__init__(checkpoint, model)
        self._reader = reader
        self._entailment, self._contradiction = _entailment(model.config, checkpoint.model_id)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Labelled:
        labels = list(dict.fromkeys(label.strip() for label in parameters.get("candidate_labels", ())))
        if not all(labels) or not labels:
            raise InvalidRequest(
                "zero-shot-classification needs the parameter candidate_labels: the labels to choose from",
                port=port_of("candidate_labels"),
                remedy='give it, such as ["sports", "politics"]',
            )
        pairs = [self._pair(inputs["text"], label) for label in labels]
        count = sum(len(pair) for pair in pairs)
        if count > max(_MOST_PAIRS, len(labels)):
            has = f"{len(pairs[0])} windows for each of {len(labels)} labels"
            raise too_long(self.model_id, "text", has, f"{_MOST_PAIRS} pairs of these")
        return Labelled(pairs, labels, parameters["multi_label"])

    def _pair(self, text: str, label: str) -> list[Window]:
        hypothesis = HYPOTHESIS.format(label)
        self._reader.check_short(hypothesis, f"label {label[:40]!r}", "text")
        return self._reader.windows(text, hypothesis)

    def cost(self, item: Labelled) -> float:
        return sum(window.length for window in item.windows)

    def run(self, items: Sequence[Labelled], call: Call) -> list[tuple[list[list[float]], Labelled]]:
        def compute(windows: Sequence[Window]) -> list[list[float]]:
            rows: list[list[float]] = _logits(self, windows, self._reader.pad_id).float().tolist()
            return rows

        logits = run_in_passes([item.windows for item in items], _length, compute, call)
        return list(zip(logits, items, strict=False))

    def finish(self, raw: tuple[list[list[float]], Labelled]) -> Outputs:
        import torch

        logits, item = raw
        rows = iter(logits)
        by_label = torch.tensor([mean([next(rows) for _ in pair], [1] * len(pair)) for pair in item.pairs])
        if item.several or len(item.labels) == 1:
            pair = by_label[:, [self._contradiction, self._entailment]]
            scores = pair.softmax(-1)[:, 1]
        else:
            scores = by_label[:, self._entailment].softmax(-1)
        labels = top_labels(scores.tolist(), item.labels)
        return {"labels": labels, "text": labels[0]["label"]}


def _loaded(model_id: str, device: str) -> tuple[Checkpoint, Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return checkpoint, tokenizer, checkpoint.model(AutoModelForSequenceClassification)


def _logits(resident: TorchHandler, windows: Sequence[Window], pad_id: int) -> Any:
    batch = pad_rows([window.row for window in windows], pad_id)
    with inference_context(resident.model_id):
        return resident.model(**move_to_device(batch, resident.model)).logits.cpu()


def _length(window: Window) -> int:
    return window.length


def _entailment(config: Any, model_id: str) -> tuple[int, int]:
    """The places of entailment and contradiction, or of what stands against entailment, in the logits."""
    names = [label.lower() for label in label_names(config)]
    entailment = next((at for at, name in enumerate(names) if name.startswith("entail")), None)
    if entailment is None:
        raise FailedPrecondition(
            f"{model_id} does not know entailment: its labels are {', '.join(names[:5])}",
            reason="LOAD_FAILED",
            remedy="take a model of natural language inference (NLI)",
        )
    against = next((at for at, name in enumerate(names) if name.startswith(("contra", "not_entail"))), None)
    return entailment, (len(names) - 1 - entailment) if against is None else against
