"""Pictures taken apart to the pixel: by class, by thing, or both (panoptic)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Outputs
from experts.host.media import png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS, label_names
from experts.torch_host.non_finite import require_finite
from experts.vision.image_batches import Scene, Seen, Viewer, fitted
from experts.vision.overlays import overlaid

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Ids = NDArray[np.uint8]

_MOST = 1_000_000
"""Pixels at which masks are taken from the model; then they are enlarged."""
_NUMBERS = 64_000_000
"""Most of classes times pixels at once."""
_SEGMENTS = 255
"""Each has a level of grey."""
_NAMED = 5
_NOTHING = "Nothing stands out."


@dataclass(frozen=True)
class Segment:
    """The nth segment has the number n in the map."""

    label: str
    score: float


@dataclass(frozen=True)
class Parted:
    """A picture's segments."""

    ids: "Ids"
    """In the picture's proportions; 0 is none."""
    segments: list[Segment]
    scene: Scene


def image_segmentation(model_id: str, device: str) -> Handler:
    """A model with a class for each pixel, or one that gives masks with classes, such as Mask2Former and EoMT."""
    from transformers import MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING as UNIVERSAL
    from transformers import (
        AutoConfig,
        AutoImageProcessor,
        AutoModelForSemanticSegmentation,
        AutoModelForUniversalSegmentation,
    )

    checkpoint = Checkpoint.fetch(model_id, device)
    universal = type(checkpoint.processor(AutoConfig)) in UNIVERSAL
    model = checkpoint.model(AutoModelForUniversalSegmentation if universal else AutoModelForSemanticSegmentation)
    return (Universal if universal else ByClass)(checkpoint, model, checkpoint.processor(AutoImageProcessor))


class Segmenter(Viewer):
    def finish(self, raw: Parted) -> Outputs:
        from PIL import Image

        ids, segments = _whole(raw)
        areas = _areas(ids, len(segments))
        levels = _levels(len(segments))
        described = [
            {"label": one.label, "score": round(one.score, DIGITS), "area": area, "grey": level}
            for one, area, level in zip(segments, areas, levels[1:], strict=True)
        ]
        mask = Image.fromarray(ids).point([*levels, *[0] * (256 - len(levels))])
        marked = overlaid(raw.scene.picture(), ids, [one.label for one in segments])
        return {
            "segments": described,
            "image": png(marked, raw.scene.named("segments")),
            "mask": png(mask, raw.scene.named("mask")),
            "text": _said(segments, areas, ids.size),
        }


class ByClass(Segmenter):
    def look(self, items: Sequence[Seen]) -> list[Parted]:
        logits = require_finite(self.computed(items).logits, self.model_id)
        labels = label_names(self.model.config)
        return [_by_class(one, item, labels) for one, item in zip(logits, items, strict=True)]


class Universal(Segmenter):
    def look(self, items: Sequence[Seen]) -> list[Parted]:
        output = self.computed(items)
        return [self._part(output, place, item) for place, item in enumerate(items)]

    def _part(self, output: Any, place: int, item: Seen) -> Parted:
        width, height = fitted(item.scene.size, _MOST)
        names = [name for name in _UNIVERSAL_OUTPUTS if getattr(output, name, None) is not None]
        masks = self.plain(output, *names, place=place)
        (result,) = self._process()(masks, threshold=item.parameters["threshold"], target_sizes=[(height, width)])
        labels = label_names(self.model.config)
        segments = [
            (one["id"], Segment(labels[one["label_id"]], float(one["score"]))) for one in result["segments_info"]
        ]
        return _parted(result["segmentation"], segments, item.scene, merged="semantic" in self.model_id.lower())

    def _process(self) -> Callable[..., Any]:
        """Which segments a model was trained for only its name says."""
        kind = "instance" if "instance" in self.model_id.lower() else "panoptic"
        process: Callable[..., Any] = getattr(self.processor, f"post_process_{kind}_segmentation")
        return process


_UNIVERSAL_OUTPUTS = ("logits", "pred_masks", "class_queries_logits", "masks_queries_logits")


def _by_class(logits: "torch.Tensor", item: Seen, labels: Sequence[str]) -> Parted:
    """The likeliest class of each pixel; a segment's score is the mean of its pixels'."""
    import torch

    width, height = fitted(item.scene.size, min(_MOST, _NUMBERS / len(labels)))
    enlarged = torch.nn.functional.interpolate(logits[None].float(), (height, width), mode="bilinear")[0]
    scores, classes = enlarged.softmax(0).max(0)
    means = [(label, float(scores[classes == label].mean())) for label in torch.unique(classes).tolist()]
    kept = [(label, Segment(labels[label], score)) for label, score in means if score >= item.parameters["threshold"]]
    return _parted(classes, kept, item.scene)


def _parted(ids: "torch.Tensor", found: Sequence[tuple[int, Segment]], scene: Scene, *, merged: bool = False) -> Parted:
    """The segments numbered by their area, the largest first; merged: those of one label are one."""
    import numpy as np

    given = ids.cpu().numpy().round().astype(np.int64)
    areas = [(int((given == id_).sum()), id_, segment) for id_, segment in found]
    order = sorted((one for one in areas if one[0]), key=lambda one: -one[0])
    numbers: dict[Any, int] = {}
    segments: list[Segment] = []
    parted = np.zeros(given.shape, np.uint8)
    for _, id_, segment in order:
        key = segment.label if merged else id_
        if key not in numbers and len(segments) < _SEGMENTS:
            segments.append(segment)
            numbers[key] = len(segments)
        parted[given == id_] = numbers.get(key, 0)
    return Parted(parted, segments, scene)


def _whole(parted: Parted) -> tuple["Ids", list[Segment]]:
    """In the picture's size; in smaller ones thin segments may vanish altogether."""
    import numpy as np
    from PIL import Image

    ids = np.asarray(Image.fromarray(parted.ids).resize(parted.scene.size, Image.Resampling.NEAREST))
    present = np.bincount(ids.ravel(), minlength=256)[1 : len(parted.segments) + 1] > 0
    renumbered = np.zeros(256, np.uint8)
    renumbered[1 : len(present) + 1] = np.where(present, present.cumsum(), 0)
    return renumbered[ids], [one for one, there in zip(parted.segments, present, strict=True) if there]


def _areas(ids: "Ids", count: int) -> list[int]:
    import numpy as np

    areas: list[int] = np.bincount(ids.ravel(), minlength=256)[1 : count + 1].tolist()
    return areas


def _levels(count: int) -> list[int]:
    """Black for the background, white for the largest segment, greys between for the rest."""
    return [0, *(round(255 * (count - place) / count) for place in range(count))]


def _said(segments: Sequence[Segment], areas: Sequence[int], pixels: int) -> str:
    parts = [f"{one.label} ({area / pixels:.0%})" for one, area in zip(segments, areas, strict=True)]
    more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return ", ".join(parts[:_NAMED]) + more if parts else _NOTHING
