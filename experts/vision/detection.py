"""Object detection, of the classes of a model or of labels in the request (zero-shot)."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters
from experts.host.input_validation import read_candidate_labels
from experts.host.media import box_to_json, png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS, label_names
from experts.vision.candidate_labels import PhraseTokenizer
from experts.vision.image_batches import (
    ImageHandler,
    ImageItem,
    InputImage,
    copy_outputs,
    require_finite_outputs,
)
from experts.vision.overlays import Detection, count_labels, draw_boxes

if TYPE_CHECKING:
    import torch

_TEXT_THRESHOLD = 0.2
"""Grounding DINO: minimum similarity of a box and a token for the token to be part of its label."""

_OUTPUTS = ("logits", "pred_boxes")

DetectionResult = tuple[list[Detection], InputImage]


def object_detection(model_id: str, device: str) -> Handler:
    """Loads a model of the DETR family, including YOLOS."""
    return load_detector(Checkpoint.fetch(model_id, device))


def load_detector(checkpoint: Checkpoint) -> "Detector":
    """Loads a detector; also used to find people for pose estimation."""
    from transformers import AutoImageProcessor, AutoModelForObjectDetection

    processor = checkpoint.processor(AutoImageProcessor)
    return Detector(checkpoint, checkpoint.model(AutoModelForObjectDetection), processor)


def zero_shot_object_detection(model_id: str, device: str) -> Handler:
    """Loads OWL-ViT, OWLv2 or Grounding DINO."""
    from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

    checkpoint = Checkpoint.fetch(model_id, device)
    model = checkpoint.model(AutoModelForZeroShotObjectDetection)
    kind = OwlDetector if model.config.model_type.startswith("owl") else GroundingDinoDetector
    return kind(checkpoint, model, checkpoint.processor(AutoProcessor))


class Detector(ImageHandler):
    def forward_batch(self, items: Sequence[ImageItem]) -> SimpleNamespace:
        return copy_outputs(self.forward(items), _OUTPUTS)

    def read_batch(self, items: Sequence[ImageItem], output: SimpleNamespace) -> list[DetectionResult]:
        results = self.processor.post_process_object_detection(
            require_finite_outputs(output, self.model_id),
            threshold=items[0].parameters["threshold"],
            target_sizes=_target_sizes(items),
        )
        names = label_names(self.model.config)
        labels = [[names[label] for label in result["labels"].tolist()] for result in results]
        return _results(results, labels, items)

    def finish(self, raw: DetectionResult) -> Outputs:
        return build_outputs(*raw)


@dataclass(frozen=True)
class ZeroShotItem(ImageItem):
    """Image of one call with the labels to detect."""

    labels: list[str]
    phrases: dict[str, "torch.Tensor"]


class ZeroShotDetector(ImageHandler):
    """Base class of detectors of the request's labels; labels are parameters, which all items of a batch share."""

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model, processor.image_processor)
        self._processor = processor
        self._phrases = PhraseTokenizer(processor.tokenizer, model.config, None)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> ZeroShotItem:
        labels = read_candidate_labels(parameters)
        phrases = self._phrases.tokenize(self.build_phrases(labels))
        item = super().prepare(inputs, parameters)
        return ZeroShotItem(item.image, item.tensors, parameters, labels, phrases)

    def build_phrases(self, labels: Sequence[str]) -> list[str]:
        """Returns the text prompts for the labels."""
        raise NotImplementedError

    def forward_batch(self, items: Sequence[ZeroShotItem]) -> SimpleNamespace:
        return copy_outputs(self.forward(items, **_repeat_phrases(items)), _OUTPUTS)

    def finish(self, raw: DetectionResult) -> Outputs:
        return build_outputs(*raw)


class OwlDetector(ZeroShotDetector):
    def build_phrases(self, labels: Sequence[str]) -> list[str]:
        return [f"a photo of {label}" for label in labels]

    def read_batch(self, items: Sequence[ZeroShotItem], output: SimpleNamespace) -> list[DetectionResult]:
        results = self._processor.post_process_grounded_object_detection(
            require_finite_outputs(output, self.model_id),
            threshold=items[0].parameters["threshold"],
            target_sizes=_target_sizes(items),
        )
        labels = [
            [item.labels[label] for label in result["labels"].tolist()]
            for result, item in zip(results, items, strict=True)
        ]
        return _results(results, labels, items)


class GroundingDinoDetector(ZeroShotDetector):
    def build_phrases(self, labels: Sequence[str]) -> list[str]:
        return [" ".join(f"{label.lower().rstrip('.')}." for label in labels)]

    def read_batch(self, items: Sequence[ZeroShotItem], output: SimpleNamespace) -> list[DetectionResult]:
        results = self._processor.post_process_grounded_object_detection(
            require_finite_outputs(output, self.model_id),
            input_ids=_repeat_phrases(items)["input_ids"],
            threshold=items[0].parameters["threshold"],
            text_threshold=_TEXT_THRESHOLD,
            target_sizes=_target_sizes(items),
        )
        labels = [
            [_match_label(text, item.labels) for text in result["text_labels"]]
            for result, item in zip(results, items, strict=True)
        ]
        return _results(results, labels, items)


def build_outputs(detections: list[Detection], image: InputImage) -> Outputs:
    """Returns the outputs of both tasks."""
    return {
        "objects": [
            {"label": detection.label, "score": round(detection.score, DIGITS), "box": box_to_json(detection.box)}
            for detection in detections
        ],
        "image": png(draw_boxes(image.load(), detections), image.output_name("objects")),
        "text": count_labels(detection.label for detection in detections),
    }


def _repeat_phrases(items: Sequence[ZeroShotItem]) -> "dict[str, torch.Tensor]":
    """Returns the text prompts, once for each image."""
    return {name: value.repeat(len(items), 1) for name, value in items[0].phrases.items()}


def _target_sizes(items: Sequence[ImageItem]) -> "torch.Tensor":
    import torch

    return torch.tensor([item.image.height_and_width for item in items])


def _results(
    results: Sequence[Any], labels: Sequence[Sequence[str]], items: Sequence[ImageItem]
) -> list[DetectionResult]:
    return [
        (_to_detections(result, names, item.image), item.image)
        for result, names, item in zip(results, labels, items, strict=True)
    ]


def _to_detections(result: Any, labels: Sequence[str], image: InputImage) -> list[Detection]:
    """Converts a result to detections, best first; boxes are clipped to the image, and those outside are omitted."""
    width, height = image.size
    scores, boxes = result["scores"].tolist(), result["boxes"].tolist()
    detections = [
        Detection(
            label, score, [min(max(edge, 0.0), end) for edge, end in zip(edges, (width, height) * 2, strict=True)]
        )
        for label, score, edges in zip(labels, scores, boxes, strict=True)
    ]
    visible = [
        detection
        for detection in detections
        if detection.box[0] < detection.box[2] and detection.box[1] < detection.box[3]
    ]
    return sorted(visible, key=lambda detection: -detection.score)


def _match_label(text: str, labels: Sequence[str]) -> str:
    """Returns the label that shares most words with the words that the model assigned to a box."""
    words = set(text.lower().split())
    return max(labels, key=lambda label: (len(words & set(label.lower().split())), label.lower() == text.lower()))
