"""Classes of a sound: those a model was trained for, or those named in the request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.audio.waveforms import heard, windows
from experts.host.audio import MAX_SECONDS
from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.host.parameters import port_of
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import is_multi_label, label_names, to_probabilities, top_labels
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import run_in_passes
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

HYPOTHESIS = "This is a sound of {}."

_WINDOW = 30.0
_FRAMES_PER_SECOND = 100
_MOST = 16_000 * 120
"""Samples in one forward pass."""


def audio_classification(model_id: str, device: str) -> Handler:
    """Any model with a head for whole recordings: AST, wav2vec 2.0, HuBERT, WavLM, Whisper."""
    from transformers import AutoFeatureExtractor, AutoModelForAudioClassification

    checkpoint = Checkpoint.fetch(model_id, device)
    features = checkpoint.processor(AutoFeatureExtractor)
    return Classifier(checkpoint, checkpoint.model(AutoModelForAudioClassification), features)


def zero_shot_audio_classification(model_id: str, device: str) -> Handler:
    """CLAP: how near a sound and words are."""
    from transformers import AutoProcessor, ClapModel

    checkpoint = Checkpoint.fetch(model_id, device)
    processor = checkpoint.processor(AutoProcessor)
    return ZeroShot(checkpoint, checkpoint.model(ClapModel), processor)


@dataclass(frozen=True)
class Recording:
    """One caller's."""

    windows: list["Samples"]
    seconds: float
    top_k: int


class Classifier(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, features: Any) -> None:
        super().__init__(checkpoint, model)
        self._features, self._rate = features, int(features.sampling_rate)
        self._labels, self._several = label_names(model.config), is_multi_label(model.config)
        self._size = int(_seconds_at_once(features) * self._rate)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Recording:
        samples = heard(inputs["audio"], self._rate, longest=MAX_SECONDS)
        return Recording(windows(samples, self._size), len(samples) / self._rate, parameters["top_k"])

    def cost(self, item: Recording) -> float:
        return item.seconds

    def run(self, items: Sequence[Recording], call: Call) -> list[tuple[list[float], int]]:
        def compute(parts: Sequence["Samples"]) -> list[list[float]]:
            batch = self._features(list(parts), sampling_rate=self._rate, return_tensors="pt")
            with inference_context(self.model_id):
                logits = self.model(**move_to_device(batch, self.model)).logits
            return to_probabilities(logits, multi_label=self._several)

        # Not all models mask padding: only parts of one length go together.
        scores = run_in_passes([item.windows for item in items], len, compute, call, max_tokens=_MOST, kind=len)
        return [(_mean(rows, item.windows), item.top_k) for rows, item in zip(scores, items, strict=False)]

    def finish(self, raw: tuple[list[float], int]) -> Outputs:
        scores, top_k = raw
        labels = top_labels(scores, self._labels, top_k)
        return {"labels": labels, "text": labels[0]["label"]}


@dataclass(frozen=True)
class Labelled:
    """One caller's recording and labels."""

    windows: list["Samples"]
    seconds: float
    labels: list[str]


class ZeroShot(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._features = processor.tokenizer, processor.feature_extractor
        self._rate = int(self._features.sampling_rate)
        self._size = int(self._features.nb_max_samples)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Labelled:
        labels = list(dict.fromkeys(label.strip() for label in parameters.get("candidate_labels", ())))
        if not all(labels) or not labels:
            raise InvalidRequest(
                "zero-shot-audio-classification needs the parameter candidate_labels: the labels to choose from",
                port=port_of("candidate_labels"),
                remedy='give it, such as ["dog barking", "car horn"]',
            )
        samples = heard(inputs["audio"], self._rate, longest=MAX_SECONDS)
        return Labelled(windows(samples, self._size), len(samples) / self._rate, labels)

    def cost(self, item: Labelled) -> float:
        return item.seconds

    def run(self, items: Sequence[Labelled], call: Call) -> list[tuple[list[float], list[str]]]:
        def compute(parts: Sequence["Samples"]) -> list[list[float]]:
            batch = self._features(list(parts), sampling_rate=self._rate, return_tensors="pt")
            with inference_context(self.model_id):
                near = self._embedded(self.model.audio_model(**_placed(batch, self.model)), "audio_projection")
            rows: list[list[float]] = (near @ words.T * self.model.logit_scale_a.exp()).float().tolist()
            return rows

        texts = [HYPOTHESIS.format(label) for label in items[0].labels]  # all items have the same parameters
        tokens = self._tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        with inference_context(self.model_id):
            words = self._embedded(self.model.text_model(**move_to_device(tokens, self.model)), "text_projection")
        found = run_in_passes([item.windows for item in items], len, compute, call, max_tokens=_MOST, kind=len)
        return [(_mean(rows, item.windows), item.labels) for rows, item in zip(found, items, strict=False)]

    def finish(self, raw: tuple[list[float], list[str]]) -> Outputs:
        import torch

        near, names = raw
        labels = top_labels(torch.tensor(near).softmax(-1).tolist(), names)
        return {"labels": labels, "text": labels[0]["label"]}

    def _embedded(self, outputs: Any, projection: str) -> Any:
        near = getattr(self.model, projection)(outputs.pooler_output)
        return near / near.norm(dim=-1, keepdim=True)


def _placed(batch: Any, model: Any) -> dict[str, Any]:
    return {
        name: value for name, value in move_to_device(batch, model).items() if name in ("input_features", "is_longer")
    }


def _seconds_at_once(features: Any) -> float:
    """How much a model hears: what is longer, its feature extractor would cut off."""
    chunk = getattr(features, "chunk_length", None)
    if chunk:
        return float(chunk)
    frames = getattr(features, "max_length", None)
    return frames / _FRAMES_PER_SECOND if frames else _WINDOW


def _mean(rows: Sequence[Sequence[float]], parts: Sequence["Samples"]) -> list[float]:
    """By label, windows weighted with their length."""
    total = sum(map(len, parts))
    columns = zip(*rows, strict=True)
    return [sum(score * len(part) for score, part in zip(column, parts, strict=True)) / total for column in columns]
