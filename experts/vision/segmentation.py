"""Image segmentation: semantic, instance or panoptic."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Outputs
from experts.host.media import png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS, label_names
from experts.torch_host.non_finite import require_finite
from experts.torch_host.torch_handler import copy_to_host
from experts.vision.image_batches import (
    ImageHandler,
    ImageItem,
    InputImage,
    copy_outputs,
    fit_size,
    require_finite_outputs,
)
from experts.vision.overlays import draw_segments

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Ids = NDArray[np.uint8]

_MASK_PIXELS = 1_000_000
"""Resolution at which masks are computed, in pixels; then they are scaled to the image's size."""
_MAX_VALUES = 64_000_000
"""Maximum classes times pixels in memory."""
_MAX_SEGMENTS = 255
"""Maximum segments of one image: each has its own grey level."""
_MAX_NAMED = 5
_NO_SEGMENTS = "No segments."
_COCO_CLASSES, _COCO_THINGS = 133, 80
"""Classes of COCO's panoptic segmentation: first things, which are counted, then surroundings such as sky."""
_FUSED_CLASSES = ("stuff_classes", "label_ids_to_fuse")
"""Names of a post-processing function's parameter for classes with a single segment, by kind of model."""


@dataclass(frozen=True)
class Segment:
    """Label and score of one segment; the nth segment has the number n in the map."""

    label: str
    score: float


@dataclass(frozen=True)
class Segmentation:
    """Segments of one image."""

    ids: "Ids"
    """Number of the segment by row and column, in the image's proportions; 0 is none."""
    segments: list[Segment]
    image: InputImage


def image_segmentation(model_id: str, device: str) -> Handler:
    """Loads a model that classifies pixels, or one of masks with classes, such as Mask2Former and EoMT."""
    from transformers import MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING as UNIVERSAL
    from transformers import (
        AutoConfig,
        AutoImageProcessor,
        AutoModelForSemanticSegmentation,
        AutoModelForUniversalSegmentation,
    )

    checkpoint = Checkpoint.fetch(model_id, device)
    is_universal = type(checkpoint.processor(AutoConfig)) in UNIVERSAL
    model = checkpoint.model(AutoModelForUniversalSegmentation if is_universal else AutoModelForSemanticSegmentation)
    return (UniversalSegmenter if is_universal else SemanticSegmenter)(
        checkpoint, model, checkpoint.processor(AutoImageProcessor)
    )


_UNIVERSAL_OUTPUTS = ("logits", "pred_masks", "class_queries_logits", "masks_queries_logits")


class Segmenter(ImageHandler):
    """Base class of both kinds. To find the segments takes long and needs no GPU, so it is a part of `finish`."""

    def find_segments(self, raw: Any) -> Segmentation:
        """Returns the segments of one image."""
        raise NotImplementedError

    def finish(self, raw: Any) -> Outputs:
        from PIL import Image

        found = self.find_segments(raw)
        ids, segments = _resize_to_image(found)
        areas = _areas(ids, len(segments))
        levels = _grey_levels(len(segments))
        descriptions = [
            {"label": segment.label, "score": round(segment.score, DIGITS), "area": area, "grey": level}
            for segment, area, level in zip(segments, areas, levels[1:], strict=True)
        ]
        mask = Image.fromarray(ids).point([*levels, *[0] * (256 - len(levels))])
        overlay = draw_segments(found.image.load(), ids, [segment.label for segment in segments])
        return {
            "segments": descriptions,
            "image": png(overlay, found.image.output_name("segments")),
            "mask": png(mask, found.image.output_name("mask")),
            "text": _summarize(segments, areas, ids.size),
        }


ClassMap = tuple["torch.Tensor", "torch.Tensor"]
"""The most likely class of each pixel of one image, and its score."""


class SemanticSegmenter(Segmenter):
    def forward_batch(self, items: Sequence[ImageItem]) -> list[ClassMap]:
        logits = self.forward(items).logits
        return [_classify_pixels(row, item.image) for row, item in zip(logits, items, strict=True)]

    def read_batch(self, items: Sequence[ImageItem], output: list[ClassMap]) -> list[tuple[ClassMap, ImageItem]]:
        for _, scores in output:
            require_finite(scores, self.model_id)
        return list(zip(output, items, strict=True))

    def find_segments(self, raw: tuple[ClassMap, ImageItem]) -> Segmentation:
        """Returns the segments of one image; the score of each is the mean of its pixels' scores."""
        (classes, scores), item = raw
        labels, threshold = label_names(self.model.config), item.parameters["threshold"]
        means = [(int(label), float(scores[classes == label].mean())) for label in classes.unique()]
        segments = [(label, Segment(labels[label], score)) for label, score in means if score >= threshold]
        return _number_segments(classes, segments, item.image)


def _classify_pixels(logits: "torch.Tensor", image: InputImage) -> ClassMap:
    import torch

    width, height = fit_size(image.size, min(_MASK_PIXELS, _MAX_VALUES / len(logits)))
    enlarged = torch.nn.functional.interpolate(logits[None].float(), (height, width), mode="bilinear")[0]
    scores, classes = enlarged.softmax(0).max(0)
    return copy_to_host(classes), copy_to_host(scores)


class UniversalSegmenter(Segmenter):
    def forward_batch(self, items: Sequence[ImageItem]) -> SimpleNamespace:
        output = self.forward(items)
        return copy_outputs(output, [name for name in _UNIVERSAL_OUTPUTS if getattr(output, name, None) is not None])

    def read_batch(
        self, items: Sequence[ImageItem], output: SimpleNamespace
    ) -> list[tuple[SimpleNamespace, ImageItem]]:
        require_finite_outputs(output, self.model_id)
        return [
            (SimpleNamespace(**{name: part[index : index + 1] for name, part in vars(output).items()}), item)
            for index, item in enumerate(items)
        ]

    def find_segments(self, raw: tuple[SimpleNamespace, ImageItem]) -> Segmentation:
        masks, item = raw
        width, height = fit_size(item.image.size, _MASK_PIXELS)
        process = self._post_processor()
        (result,) = process(
            masks,
            threshold=item.parameters["threshold"],
            target_sizes=[(height, width)],
            **_fused_classes(process, self.model.config.num_labels),
        )
        labels = label_names(self.model.config)
        segments = [
            (info["id"], Segment(labels[info["label_id"]], float(info["score"]))) for info in result["segments_info"]
        ]
        return _number_segments(
            result["segmentation"], segments, item.image, merge_labels="semantic" in self.model_id.lower()
        )

    def _post_processor(self) -> Callable[..., Any]:
        """Returns the processor's function for the model's kind of segmentation, which only the model's name states."""
        kind = "instance" if "instance" in self.model_id.lower() else "panoptic"
        process: Callable[..., Any] = getattr(self.processor, f"post_process_{kind}_segmentation")
        return process


def _fused_classes(process: Callable[..., Any], count: int) -> dict[str, list[int]]:
    """Returns the argument that gives each class of surroundings one segment, if the model has COCO's classes."""
    name = next((name for name in _FUSED_CLASSES if name in inspect.signature(process).parameters), "")
    return {name: list(range(_COCO_THINGS, count))} if name and count == _COCO_CLASSES else {}


def _number_segments(
    ids: "torch.Tensor", segments_by_id: Sequence[tuple[int, Segment]], image: InputImage, *, merge_labels: bool = False
) -> Segmentation:
    """Numbers segments by area, largest first; with merge_labels, segments of one label become one."""
    import numpy as np

    ids_by_pixel = ids.cpu().numpy().round().astype(np.int64)
    areas = [(int((ids_by_pixel == id_).sum()), id_, segment) for id_, segment in segments_by_id]
    order = sorted((entry for entry in areas if entry[0]), key=lambda entry: -entry[0])
    numbers: dict[Any, int] = {}
    segments: list[Segment] = []
    numbered = np.zeros(ids_by_pixel.shape, np.uint8)
    for _, id_, segment in order:
        key = segment.label if merge_labels else id_
        if key not in numbers and len(segments) < _MAX_SEGMENTS:
            segments.append(segment)
            numbers[key] = len(segments)
        numbered[ids_by_pixel == id_] = numbers.get(key, 0)
    return Segmentation(numbered, segments, image)


def _resize_to_image(numbered: Segmentation) -> tuple["Ids", list[Segment]]:
    """Scales a segmentation to the image's size, without segments that are too thin to remain."""
    import numpy as np
    from PIL import Image

    ids = np.asarray(Image.fromarray(numbered.ids).resize(numbered.image.size, Image.Resampling.NEAREST))
    present = np.bincount(ids.ravel(), minlength=256)[1 : len(numbered.segments) + 1] > 0
    renumbered = np.zeros(256, np.uint8)
    renumbered[1 : len(present) + 1] = np.where(present, present.cumsum(), 0)
    return renumbered[ids], [
        segment for segment, is_present in zip(numbered.segments, present, strict=True) if is_present
    ]


def _areas(ids: "Ids", count: int) -> list[int]:
    import numpy as np

    areas: list[int] = np.bincount(ids.ravel(), minlength=256)[1 : count + 1].tolist()
    return areas


def _grey_levels(count: int) -> list[int]:
    """Returns a grey level per segment: white for the largest, darker for smaller ones; first black for none."""
    return [0, *(round(255 * (count - index) / count) for index in range(count))]


def _summarize(segments: Sequence[Segment], areas: Sequence[int], pixels: int) -> str:
    parts = [f"{segment.label} ({area / pixels:.0%})" for segment, area in zip(segments, areas, strict=True)]
    more = f" and {len(parts) - _MAX_NAMED} more" if len(parts) > _MAX_NAMED else ""
    return ", ".join(parts[:_MAX_NAMED]) + more if parts else _NO_SEGMENTS
