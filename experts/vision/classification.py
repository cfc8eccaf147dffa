"""Classes of a picture: those a model was trained for, or those named in the request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import is_multi_label, label_names, to_probabilities, top_labels
from experts.vision.image_batches import Seen, Viewer
from experts.vision.labels import Phrases, candidates

if TYPE_CHECKING:
    import torch

_PHRASE = "This is a photo of {}."
_SIGLIP_TOKENS = 64
"""Its texts were padded to this in training."""


def image_classification(model_id: str, device: str) -> Handler:
    """Any model with a head for pictures."""
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    checkpoint = Checkpoint.fetch(model_id, device)
    processor = checkpoint.processor(AutoImageProcessor)
    return Classifier(checkpoint, checkpoint.model(AutoModelForImageClassification), processor)


def zero_shot_image_classification(model_id: str, device: str) -> Handler:
    """A model of pictures and texts in one space, such as CLIP or SigLIP."""
    from transformers import AutoImageProcessor, AutoModelForZeroShotImageClassification, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    model = checkpoint.model(AutoModelForZeroShotImageClassification)
    processor = checkpoint.processor(AutoImageProcessor)
    return ZeroShot(checkpoint, model, processor, checkpoint.processor(AutoTokenizer))


class Classifier(Viewer):
    def look(self, items: Sequence[Seen]) -> list[tuple[list[float], Seen]]:
        scores = to_probabilities(self.computed(items).logits, multi_label=is_multi_label(self.model.config))
        return list(zip(scores, items, strict=True))

    def finish(self, raw: tuple[list[float], Seen]) -> Outputs:
        scores, item = raw
        labels = top_labels(scores, label_names(self.model.config), item.parameters["top_k"])
        return {"labels": labels, "text": labels[0]["label"]}


@dataclass(frozen=True)
class Labelled(Seen):
    """A picture with the labels to choose from."""

    labels: list[str]
    phrases: dict[str, "torch.Tensor"]


class ZeroShot(Viewer):
    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model, processor)
        self._several = "siglip" in model.config.model_type
        self._phrases = Phrases(tokenizer, model.config, _SIGLIP_TOKENS if self._several else None)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Labelled:
        labels = candidates(parameters, "zero-shot-image-classification")
        phrases = self._phrases.tokens([_PHRASE.format(label) for label in labels])
        seen = super().prepare(inputs, parameters)
        return Labelled(seen.scene, seen.tensors, parameters, labels, phrases)

    def look(self, items: Sequence[Any]) -> list[tuple[list[float], Labelled]]:
        """The labels are parameters, so all items have the same."""
        logits = self.computed(items, **items[0].phrases).logits_per_image
        return list(zip(to_probabilities(logits, multi_label=self._several), items, strict=True))

    def finish(self, raw: tuple[list[float], Labelled]) -> Outputs:
        scores, item = raw
        labels = top_labels(scores, item.labels)
        return {"labels": labels, "text": labels[0]["label"]}
