"""Image classification, by the classes of a model or by labels in the request (zero-shot)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters
from experts.host.input_validation import read_candidate_labels
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import is_multi_label, label_names, to_probabilities, top_labels
from experts.torch_host.torch_handler import copy_to_host
from experts.vision.candidate_labels import PhraseTokenizer
from experts.vision.image_batches import ImageHandler, ImageItem

if TYPE_CHECKING:
    import torch

_PHRASE = "This is a photo of {}."
_SIGLIP_TOKENS = 64
"""Length to which SigLIP's texts were padded in training."""


def image_classification(model_id: str, device: str) -> Handler:
    """Loads a model with a head for images."""
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    checkpoint = Checkpoint.fetch(model_id, device)
    processor = checkpoint.processor(AutoImageProcessor)
    return Classifier(checkpoint, checkpoint.model(AutoModelForImageClassification), processor)


def zero_shot_image_classification(model_id: str, device: str) -> Handler:
    """Loads a model that embeds images and texts in one space, such as CLIP or SigLIP."""
    from transformers import AutoImageProcessor, AutoModelForZeroShotImageClassification, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    model = checkpoint.model(AutoModelForZeroShotImageClassification)
    processor = checkpoint.processor(AutoImageProcessor)
    return ZeroShotClassifier(checkpoint, model, processor, checkpoint.processor(AutoTokenizer))


class Classifier(ImageHandler):
    def forward_batch(self, items: Sequence[ImageItem]) -> "torch.Tensor":
        return copy_to_host(self.forward(items).logits)

    def read_batch(self, items: Sequence[ImageItem], output: "torch.Tensor") -> list[tuple[list[float], ImageItem]]:
        scores = to_probabilities(output, multi_label=is_multi_label(self.model.config))
        return list(zip(scores, items, strict=True))

    def finish(self, raw: tuple[list[float], ImageItem]) -> Outputs:
        scores, item = raw
        labels = top_labels(scores, label_names(self.model.config), item.parameters["top_k"])
        return {"labels": labels, "text": labels[0]["label"]}


@dataclass(frozen=True)
class ZeroShotItem(ImageItem):
    """Image of one call with its candidate labels."""

    labels: list[str]
    phrases: dict[str, "torch.Tensor"]


class ZeroShotClassifier(ImageHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model, processor)
        self._is_multi_label = "siglip" in model.config.model_type
        self._phrases = PhraseTokenizer(tokenizer, model.config, _SIGLIP_TOKENS if self._is_multi_label else None)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> ZeroShotItem:
        labels = read_candidate_labels(parameters)
        phrases = self._phrases.tokenize([_PHRASE.format(label) for label in labels])
        item = super().prepare(inputs, parameters)
        return ZeroShotItem(item.image, item.tensors, parameters, labels, phrases)

    def forward_batch(self, items: Sequence[ZeroShotItem]) -> "torch.Tensor":
        """Classifies images with the labels of the first: labels are parameters, which all items of a batch share."""
        return copy_to_host(self.forward(items, **items[0].phrases).logits_per_image)

    def read_batch(
        self, items: Sequence[ZeroShotItem], output: "torch.Tensor"
    ) -> list[tuple[list[float], ZeroShotItem]]:
        return list(zip(to_probabilities(output, multi_label=self._is_multi_label), items, strict=True))

    def finish(self, raw: tuple[list[float], ZeroShotItem]) -> Outputs:
        scores, item = raw
        labels = top_labels(scores, item.labels)
        return {"labels": labels, "text": labels[0]["label"]}
