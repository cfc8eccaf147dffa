"""Things in a picture with boxes around them: those a model was trained for, or those named in the request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters
from experts.host.media import box, png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS, label_names
from experts.vision.image_batches import Scene, Seen, Viewer
from experts.vision.labels import Phrases, candidates
from experts.vision.overlays import Found, boxed, counted

if TYPE_CHECKING:
    import torch

_OWL_TOKENS = 16
_NAMED = 0.2
"""Grounding DINO: the least likeness of a box to a word."""

Detected = tuple[list[Found], Scene]


def object_detection(model_id: str, device: str) -> Handler:
    """Any model of the DETR family, YOLOS included."""
    return detector(Checkpoint.fetch(model_id, device))


def detector(checkpoint: Checkpoint) -> "Detector":
    """Also used to find the people whose poses are wanted."""
    from transformers import AutoImageProcessor, AutoModelForObjectDetection

    processor = checkpoint.processor(AutoImageProcessor)
    return Detector(checkpoint, checkpoint.model(AutoModelForObjectDetection), processor)


def zero_shot_object_detection(model_id: str, device: str) -> Handler:
    """OWL-ViT, OWLv2 or Grounding DINO."""
    from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

    checkpoint = Checkpoint.fetch(model_id, device)
    model = checkpoint.model(AutoModelForZeroShotObjectDetection)
    kind = Owl if model.config.model_type.startswith("owl") else Grounding
    return kind(checkpoint, model, checkpoint.processor(AutoProcessor))


class Detector(Viewer):
    def look(self, items: Sequence[Seen]) -> list[Detected]:
        output = self.plain(self.computed(items), "logits", "pred_boxes")
        results = self.processor.post_process_object_detection(
            output, threshold=items[0].parameters["threshold"], target_sizes=_sizes(items)
        )
        names = label_names(self.model.config)
        return [
            (_found(result, [names[label] for label in result["labels"].tolist()], item.scene), item.scene)
            for result, item in zip(results, items, strict=True)
        ]

    def finish(self, raw: Detected) -> Outputs:
        return described(*raw)


@dataclass(frozen=True)
class Sought(Seen):
    """A picture with what to look for in it."""

    labels: list[str]
    phrases: dict[str, "torch.Tensor"]


class Seeker(Viewer):
    """Looks for what the request names."""

    tokens: int | None = None

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model, processor.image_processor)
        self._processor = processor
        self._phrases = Phrases(processor.tokenizer, model.config, None)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Sought:
        labels = candidates(parameters, "zero-shot-object-detection")
        phrases = self._phrases.tokens(self.phrased(labels))
        seen = super().prepare(inputs, parameters)
        return Sought(seen.scene, seen.tensors, parameters, labels, phrases)

    def phrased(self, labels: Sequence[str]) -> list[str]:
        """The labels as the model wants to be asked for them."""
        raise NotImplementedError

    def finish(self, raw: Detected) -> Outputs:
        return described(*raw)


class Owl(Seeker):
    def phrased(self, labels: Sequence[str]) -> list[str]:
        return [f"a photo of {label}" for label in labels]

    def look(self, items: Sequence[Any]) -> list[Detected]:
        asked = {name: value.repeat(len(items), 1) for name, value in items[0].phrases.items()}
        output = self.plain(self.computed(items, **asked), "logits", "pred_boxes")
        results = self._processor.post_process_grounded_object_detection(
            output, threshold=items[0].parameters["threshold"], target_sizes=_sizes(items)
        )
        return [
            (_found(result, [item.labels[label] for label in result["labels"].tolist()], item.scene), item.scene)
            for result, item in zip(results, items, strict=True)
        ]


class Grounding(Seeker):
    def phrased(self, labels: Sequence[str]) -> list[str]:
        return [" ".join(f"{label.lower().rstrip('.')}." for label in labels)]

    def look(self, items: Sequence[Any]) -> list[Detected]:
        asked = {name: value.repeat(len(items), 1) for name, value in items[0].phrases.items()}
        output = self.plain(self.computed(items, **asked), "logits", "pred_boxes")
        results = self._processor.post_process_grounded_object_detection(
            output,
            input_ids=asked["input_ids"],
            threshold=items[0].parameters["threshold"],
            text_threshold=_NAMED,
            target_sizes=_sizes(items),
        )
        return [
            (_found(result, [_nearest(text, item.labels) for text in result["text_labels"]], item.scene), item.scene)
            for result, item in zip(results, items, strict=True)
        ]


def described(found: list[Found], scene: Scene) -> Outputs:
    """Found things as the outputs of both tasks."""
    return {
        "objects": [{"label": one.label, "score": round(one.score, DIGITS), "box": box(one.box)} for one in found],
        "image": png(boxed(scene.picture(), found), scene.named("objects")),
        "text": counted(one.label for one in found),
    }


def _sizes(items: Sequence[Seen]) -> "torch.Tensor":
    import torch

    return torch.tensor([item.scene.rows_and_columns for item in items])


def _found(result: Any, labels: Sequence[str], scene: Scene) -> list[Found]:
    """Best first, and none outside the picture."""
    width, height = scene.size
    scores, boxes = result["scores"].tolist(), result["boxes"].tolist()
    found = [
        Found(
            label, score, [min(max(place, 0.0), end) for place, end in zip(corners, (width, height) * 2, strict=True)]
        )
        for label, score, corners in zip(labels, scores, boxes, strict=True)
    ]
    inside = [one for one in found if one.box[0] < one.box[2] and one.box[1] < one.box[3]]
    return sorted(inside, key=lambda one: -one.score)


def _nearest(words: str, labels: Sequence[str]) -> str:
    """The label that the words, which the model marked in all of them, are of."""
    marked = set(words.lower().split())
    return max(labels, key=lambda label: (len(marked & set(label.lower().split())), label.lower() == words.lower()))
