"""Text classification, by the classes of a model or by labels in the request (zero-shot)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.host.input_validation import read_candidate_labels
from experts.text.token_windows import Window, WindowTokenizer, too_large_error, weighted_mean
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import is_multi_label, label_names, to_probabilities, top_labels
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import Passes, launch_passes, pad_rows
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    import torch

HYPOTHESIS = "This example is {}."
_MAX_PAIRS = 512
"""Maximum pairs of window and label, if the text has more than one window."""


def text_classification(model_id: str, device: str) -> Handler:
    """Loads a model with a head for sequences."""
    checkpoint, tokenizer, model = _load(model_id, device)
    return Classifier(checkpoint, model, WindowTokenizer(tokenizer, model, model_id))


def zero_shot_classification(model_id: str, device: str) -> Handler:
    """Loads a model of natural language inference: whether a text entails that it is about a label.

    Raises:
        FailedPrecondition: LOAD_FAILED, the model has no label for entailment.
    """
    checkpoint, tokenizer, model = _load(model_id, device)
    return ZeroShotClassifier(checkpoint, model, WindowTokenizer(tokenizer, model, model_id))


@dataclass(frozen=True)
class ClassificationItem:
    """Text of one call."""

    windows: list[Window]
    top_k: int


class Classifier(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, window_tokenizer: WindowTokenizer) -> None:
        super().__init__(checkpoint, model)
        self._window_tokenizer = window_tokenizer
        self._labels, self._is_multi_label = label_names(model.config), is_multi_label(model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> ClassificationItem:
        return ClassificationItem(self._window_tokenizer.split(inputs["text"]), parameters["top_k"])

    def cost(self, item: ClassificationItem) -> float:
        return sum(window.length for window in item.windows)

    def compute(self, items: Sequence[ClassificationItem], call: Call) -> ReadResults:
        passes = _launch_passes(self, items, self._window_tokenizer.pad_id, call)

        def read() -> list[tuple[list[float], int]]:
            scores = passes.read(lambda _, logits: to_probabilities(logits, multi_label=self._is_multi_label))
            return [
                (weighted_mean(rows, [window.length for window in item.windows]), item.top_k)
                for rows, item in zip(scores, items, strict=False)
            ]

        return read

    def finish(self, raw: tuple[list[float], int]) -> Outputs:
        scores, top_k = raw
        labels = top_labels(scores, self._labels, top_k)
        return {"labels": labels, "text": labels[0]["label"]}


@dataclass(frozen=True)
class ZeroShotItem:
    """Text of one call, paired with each label."""

    pairs: list[list[Window]]
    """Windows by label."""
    labels: list[str]
    is_multi_label: bool

    @property
    def windows(self) -> list[Window]:
        return [window for pair in self.pairs for window in pair]


class ZeroShotClassifier(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, window_tokenizer: WindowTokenizer) -> None:
        super().__init__(checkpoint, model)
        self._window_tokenizer = window_tokenizer
        self._entailment, self._contradiction = _entailment_indices(model.config, checkpoint.model_id)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> ZeroShotItem:
        labels = read_candidate_labels(parameters)
        pairs = [self._pair(inputs["text"], label) for label in labels]
        count = sum(len(pair) for pair in pairs)
        if count > max(_MAX_PAIRS, len(labels)):
            size = f"{len(pairs[0])} windows for each of {len(labels)} labels"
            raise too_large_error(self.model_id, "text", size, f"{_MAX_PAIRS} pairs of window and label")
        return ZeroShotItem(pairs, labels, parameters["multi_label"])

    def _pair(self, text: str, label: str) -> list[Window]:
        hypothesis = HYPOTHESIS.format(label)
        self._window_tokenizer.check_length(hypothesis, f"label {label[:40]!r}", "text")
        return self._window_tokenizer.split(text, hypothesis)

    def cost(self, item: ZeroShotItem) -> float:
        return sum(window.length for window in item.windows)

    def compute(self, items: Sequence[ZeroShotItem], call: Call) -> ReadResults:
        passes = _launch_passes(self, items, self._window_tokenizer.pad_id, call)

        def read() -> list[tuple[list[list[float]], ZeroShotItem]]:
            rows: list[list[list[float]]] = passes.read(lambda _, logits: logits.tolist())
            return list(zip(rows, items, strict=False))

        return read

    def finish(self, raw: tuple[list[list[float]], ZeroShotItem]) -> Outputs:
        import torch

        logits, item = raw
        rows = iter(logits)
        by_label = torch.tensor([weighted_mean([next(rows) for _ in pair], [1] * len(pair)) for pair in item.pairs])
        if item.is_multi_label or len(item.labels) == 1:
            pair = by_label[:, [self._contradiction, self._entailment]]
            scores = pair.softmax(-1)[:, 1]
        else:
            scores = by_label[:, self._entailment].softmax(-1)
        labels = top_labels(scores.tolist(), item.labels)
        return {"labels": labels, "text": labels[0]["label"]}


def _load(model_id: str, device: str) -> tuple[Checkpoint, Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return checkpoint, tokenizer, checkpoint.model(AutoModelForSequenceClassification)


def _launch_passes(
    handler: TorchHandler, items: Sequence[ClassificationItem | ZeroShotItem], pad_id: int, call: Call
) -> "Passes[Window, torch.Tensor]":
    """Computes the logits of all windows of the items."""

    def forward(windows: Sequence[Window]) -> "torch.Tensor":
        batch = pad_rows([window.row for window in windows], pad_id)
        with inference_context(handler.model_id):
            return copy_to_host(handler.model(**move_to_device(batch, handler.model)).logits)

    windows = [item.windows for item in items]
    return launch_passes(windows, lambda window: window.length, forward, call, max_tokens=handler.max_pass_tokens)


def _entailment_indices(config: Any, model_id: str) -> tuple[int, int]:
    """Returns the indices of entailment and of its opposite (contradiction, or not entailment) in the logits."""
    names = [label.lower() for label in label_names(config)]
    entailment = next((index for index, name in enumerate(names) if name.startswith("entail")), None)
    if entailment is None:
        raise FailedPrecondition(
            f"{model_id} has no label for entailment: its labels are {', '.join(names[:5])}",
            reason="LOAD_FAILED",
            remedy="use a model of natural language inference (NLI)",
        )
    opposite = next((index for index, name in enumerate(names) if name.startswith(("contra", "not_entail"))), None)
    return entailment, (len(names) - 1 - entailment) if opposite is None else opposite
