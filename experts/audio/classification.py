"""Audio classification, by the classes of a model or by labels in the request (zero-shot)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.audio.features import Window, extract_window, launch_windows, stack_features, sum_seconds
from experts.audio.waveforms import decode_samples, split_windows
from experts.host.handler import Batching, Call, Handler, Inputs, Outputs, Parameters
from experts.host.input_validation import read_candidate_labels
from experts.host.media.audio import MAX_SECONDS
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import is_multi_label, label_names, to_probabilities, top_labels
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host

if TYPE_CHECKING:
    import torch

HYPOTHESIS = "This is a sound of {}."

_DEFAULT_WINDOW_SECONDS = 30.0
_FRAMES_PER_SECOND = 100
_AUDIOSET_CLASSES = 527
"""Classes of AudioSet, whose recordings have several labels; the configuration of AST does not state that."""
_MAX_SAMPLES = 16_000 * 120
"""Samples in one forward pass."""


def audio_classification(model_id: str, device: str) -> Handler:
    """Loads a model with a head for whole recordings: AST, wav2vec 2.0, HuBERT, WavLM, Whisper."""
    from transformers import AutoFeatureExtractor, AutoModelForAudioClassification

    checkpoint = Checkpoint.fetch(model_id, device)
    features = checkpoint.processor(AutoFeatureExtractor)
    return Classifier(checkpoint, checkpoint.model(AutoModelForAudioClassification), features)


def zero_shot_audio_classification(model_id: str, device: str) -> Handler:
    """Loads CLAP, which scores the similarity of audio and text."""
    from transformers import AutoProcessor, ClapModel

    checkpoint = Checkpoint.fetch(model_id, device)
    processor = checkpoint.processor(AutoProcessor)
    return ZeroShotClassifier(checkpoint, checkpoint.model(ClapModel), processor)


@dataclass(frozen=True)
class ClassificationItem:
    """Recording of one call."""

    windows: list[Window]
    top_k: int


class Classifier(TorchHandler):
    """Classifies recordings by the classes of the model."""

    batching = Batching()

    def __init__(self, checkpoint: Checkpoint, model: Any, features: Any) -> None:
        super().__init__(checkpoint, model)
        self._features, self._rate = features, int(features.sampling_rate)
        self._labels = label_names(model.config)
        self._is_multi_label = is_multi_label(model.config) or len(self._labels) == _AUDIOSET_CLASSES
        self._window_samples = int(_window_seconds(features) * self._rate)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> ClassificationItem:
        samples = decode_samples(inputs["audio"], self._rate, max_seconds=MAX_SECONDS)
        parts = split_windows(samples, self._window_samples)
        return ClassificationItem([extract_window(self._features, part) for part in parts], parameters["top_k"])

    def cost(self, item: ClassificationItem) -> float:
        return sum_seconds(item.windows, self._rate)

    def compute(self, items: Sequence[ClassificationItem], call: Call) -> ReadResults:
        def forward(windows: Sequence[Window]) -> "torch.Tensor":
            with inference_context(self.model_id):
                return copy_to_host(self.model(**stack_features(windows, self.model)).logits)

        passes = launch_windows([item.windows for item in items], forward, call, max_samples=_MAX_SAMPLES)

        def read() -> list[tuple[list[float], int]]:
            scores = passes.read(lambda _, logits: to_probabilities(logits, multi_label=self._is_multi_label))
            return [(_weighted_mean(rows, item.windows), item.top_k) for rows, item in zip(scores, items, strict=False)]

        return read

    def finish(self, raw: tuple[list[float], int]) -> Outputs:
        scores, top_k = raw
        labels = top_labels(scores, self._labels, top_k)
        return {"labels": labels, "text": labels[0]["label"]}


@dataclass(frozen=True)
class ZeroShotItem:
    """Recording of one call with its candidate labels."""

    windows: list[Window]
    labels: list[str]
    tokens: Any
    """The labels' hypotheses, tokenized as a batch."""


class ZeroShotClassifier(TorchHandler):
    """Classifies recordings by the labels in the request."""

    batching = Batching()

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._features = processor.tokenizer, processor.feature_extractor
        self._rate = int(self._features.sampling_rate)
        self._window_samples = int(self._features.nb_max_samples)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> ZeroShotItem:
        labels = read_candidate_labels(parameters)
        samples = decode_samples(inputs["audio"], self._rate, max_seconds=MAX_SECONDS)
        parts = split_windows(samples, self._window_samples)
        texts = [HYPOTHESIS.format(label) for label in labels]
        tokens = self._tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        return ZeroShotItem([extract_window(self._features, part) for part in parts], labels, tokens)

    def cost(self, item: ZeroShotItem) -> float:
        return sum_seconds(item.windows, self._rate)

    def compute(self, items: Sequence[ZeroShotItem], call: Call) -> ReadResults:
        def forward(windows: Sequence[Window]) -> "torch.Tensor":
            features = stack_features(windows, self.model)
            with inference_context(self.model_id):
                embeddings = self._embed(self.model.audio_model(**_audio_inputs(features)), "audio_projection")
                return copy_to_host(embeddings @ text_embeddings.T * self.model.logit_scale_a.exp())

        tokens = move_to_device(items[0].tokens, self.model)  # all items have the same parameters
        with inference_context(self.model_id):
            text_embeddings = self._embed(self.model.text_model(**tokens), "text_projection")
        passes = launch_windows([item.windows for item in items], forward, call, max_samples=_MAX_SAMPLES)

        def read() -> list[tuple[list[float], list[str]]]:
            logits: list[list[list[float]]] = passes.read(lambda _, rows: rows.tolist())
            return [
                (_weighted_mean(rows, item.windows), item.labels) for rows, item in zip(logits, items, strict=False)
            ]

        return read

    def finish(self, raw: tuple[list[float], list[str]]) -> Outputs:
        import torch

        logits, names = raw
        labels = top_labels(torch.tensor(logits).softmax(-1).tolist(), names)
        return {"labels": labels, "text": labels[0]["label"]}

    def _embed(self, outputs: Any, projection: str) -> Any:
        embedding = getattr(self.model, projection)(outputs.pooler_output)
        return embedding / embedding.norm(dim=-1, keepdim=True)


def _audio_inputs(features: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in features.items() if name in ("input_features", "is_longer")}


def _window_seconds(features: Any) -> float:
    """Returns the window size of a feature extractor, in seconds; longer input would be truncated."""
    chunk = getattr(features, "chunk_length", None)
    if chunk:
        return float(chunk)
    frames = getattr(features, "max_length", None)
    return frames / _FRAMES_PER_SECOND if frames else _DEFAULT_WINDOW_SECONDS


def _weighted_mean(rows: Sequence[Sequence[float]], windows: Sequence[Window]) -> list[float]:
    """Returns the mean score of each label over the windows, weighted by their length."""
    total = sum(window.length for window in windows)
    columns = zip(*rows, strict=True)
    return [
        sum(score * window.length for score, window in zip(column, windows, strict=True)) / total for column in columns
    ]
