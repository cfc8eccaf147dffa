"""Mask generation for all objects of an image, from a grid of points (Segment Anything 1 and 2)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Outputs
from experts.host.media import box_to_json, png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from experts.vision.image_batches import ImageHandler, ImageItem, InputImage, fit_size
from experts.vision.overlays import draw_segments

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

_POINTS_PER_SIDE = 32
"""Points in a row of the grid, and rows."""
_POINTS_PER_PASS = 64
"""Points in one forward pass."""
_MIN_QUALITY, _MIN_STABILITY = 0.88, 0.95
"""Minimum predicted quality of a mask, and minimum stability: see _stability."""
_STABILITY_OFFSET = 1.0
_MAX_OVERLAP = 0.7
_MASK_PIXELS = 500_000
"""Resolution at which masks are selected, in pixels."""
_MAX_MASKS = 255
_SECOND_VERSION = ("sam2", "sam2_video")
"""Types of SAM 2: its images are stretched to a square, those of SAM are padded to one."""


@dataclass(frozen=True)
class Masks:
    """Masks of one image, best first."""

    masks: "NDArray[np.bool_]"
    """By index, row and column, in the image's proportions."""
    scores: list[float]
    image: InputImage


def mask_generation(model_id: str, device: str) -> Handler:
    """Loads SAM or SAM 2; of one that also tracks objects in videos, only what pictures need."""
    from transformers import AutoConfig, AutoImageProcessor, Sam2Model, SamModel, ViTImageProcessorPil

    checkpoint = Checkpoint.fetch(model_id, device)
    if checkpoint.processor(AutoConfig).model_type not in _SECOND_VERSION:
        return MaskGenerator(checkpoint, checkpoint.model(SamModel), checkpoint.processor(AutoImageProcessor))
    # SAM 2's own image processor needs torchvision; this one does the same: a resize to the model's square
    return MaskGenerator(checkpoint, checkpoint.model(Sam2Model), checkpoint.processor(ViTImageProcessorPil))


class MaskGenerator(ImageHandler):
    def run(self, items: Sequence[ImageItem], call: Call) -> list[Masks]:
        """Runs one image at a time: its points are batched."""
        with inference_context(self.model_id):
            return [self._masks(item, call) for item in items if not call.cancelled]

    def finish(self, raw: Masks) -> Outputs:
        import numpy as np
        from PIL import Image

        levels = np.zeros(raw.image.size[::-1], np.uint8)
        descriptions = []
        for number, (mask, score) in enumerate(zip(raw.masks, raw.scores, strict=True), 1):
            resized = np.asarray(Image.fromarray(mask).resize(raw.image.size, Image.Resampling.NEAREST))
            levels[resized & (levels == 0)] = number
            area = int(resized.sum())
            descriptions.append(
                {"score": round(score, DIGITS), "area": area, "box": box_to_json(_bounding_box(resized))}
            )
        overlay = draw_segments(raw.image.load(), levels)
        count = len(descriptions)
        return {
            "masks": descriptions,
            "image": png(overlay, raw.image.output_name("masks")),
            "text": f"{count or 'no'} mask{'' if count == 1 else 's'}",
        }

    def _masks(self, item: ImageItem, call: Call) -> Masks:
        import torch

        pixels = move_to_device({"pixel_values": item.tensors["pixel_values"]}, self.model)["pixel_values"]
        embeddings = self.model.get_image_embeddings(pixels)
        masks: list[torch.Tensor] = []
        scores: list[torch.Tensor] = []
        for points, fraction in self._point_batches(item):
            if call.cancelled:
                break
            output = self.model(image_embeddings=embeddings, input_points=points.to(pixels), multimask_output=True)
            candidates, quality = self._select_masks(output, item)
            masks.append(candidates)
            scores.append(quality)
            call.progress(fraction, "masks")
        all_masks, quality = torch.cat(masks), torch.cat(scores)
        selected = suppress_overlaps(_bounding_boxes(all_masks), quality)[:_MAX_MASKS]
        return Masks(all_masks[selected].cpu().numpy(), quality[selected].tolist(), item.image)

    def _point_batches(self, item: ImageItem) -> "Iterator[tuple[torch.Tensor, float]]":
        """Yields points in pixels of the preprocessed image, with the fraction of points yielded so far."""
        import torch

        height, width = _preprocessed_size(item)
        steps = (torch.arange(_POINTS_PER_SIDE) + 0.5) / _POINTS_PER_SIDE
        rows, columns = torch.meshgrid(steps * height, steps * width, indexing="ij")
        grid = torch.stack([columns, rows], -1).reshape(1, -1, 1, 2)
        for start in range(0, grid.shape[1], _POINTS_PER_PASS):
            part = grid[:, start : start + _POINTS_PER_PASS]
            yield part, (start + part.shape[1]) / grid.shape[1]

    def _select_masks(self, output: Any, item: ImageItem) -> "tuple[torch.Tensor, torch.Tensor]":
        """Returns non-empty masks of sufficient quality and stability, in the image's proportions, with quality."""
        quality = require_finite(output.iou_scores.float(), self.model_id).flatten().clamp(max=1)
        logits = require_finite(output.pred_masks.float(), self.model_id).flatten(0, 2)
        is_good = quality >= _MIN_QUALITY
        upscaled = self._upscale(logits[is_good], item)
        is_stable = _stability(upscaled) >= _MIN_STABILITY
        masks = upscaled[is_stable] > 0
        is_present = masks.flatten(1).any(1)
        return masks[is_present], quality[is_good][is_stable][is_present]

    def _upscale(self, logits: "torch.Tensor", item: ImageItem) -> "torch.Tensor":
        """Scales masks to the image's proportions, without the padding that makes the model's input square."""
        import torch

        height, width = _preprocessed_size(item)
        side = item.tensors["pixel_values"].shape[-1]
        scale = logits.shape[-1] / side
        cropped = logits[:, : max(1, round(height * scale)), : max(1, round(width * scale))]
        columns, rows = fit_size(item.image.size, _MASK_PIXELS)
        return torch.nn.functional.interpolate(cropped[:, None], (rows, columns), mode="bilinear")[:, 0]


def _preprocessed_size(item: ImageItem) -> tuple[int, int]:
    """Returns height and width of the image in the model's square, without padding."""
    sizes = item.tensors.get("reshaped_input_sizes")
    height, width = item.tensors["pixel_values"].shape[-2:] if sizes is None else sizes[0].tolist()
    return height, width


def suppress_overlaps(boxes: "torch.Tensor", scores: "torch.Tensor") -> list[int]:
    """Returns the indices of boxes by score, without those that overlap a better one (non-maximum suppression)."""
    import torch

    selected: list[int] = []
    for index in scores.argsort(descending=True, stable=True).tolist():
        if (
            not selected
            or float(_overlaps(boxes[index], boxes[torch.tensor(selected, device=boxes.device)]).max()) <= _MAX_OVERLAP
        ):
            selected.append(index)
    return selected


def _overlaps(edges: "torch.Tensor", others: "torch.Tensor") -> "torch.Tensor":
    """Returns the intersection over union of a box with others."""
    import torch

    low, high = torch.maximum(edges[:2], others[:, :2]), torch.minimum(edges[2:], others[:, 2:])
    intersection = (high - low).clamp(min=0).prod(-1)
    areas = (others[:, 2:] - others[:, :2]).prod(-1) + (edges[2:] - edges[:2]).prod()
    return intersection / (areas - intersection)


def _stability(logits: "torch.Tensor") -> "torch.Tensor":
    """Returns the ratio of areas of the masks at a higher and a lower threshold: 1 for a sharp edge."""
    inner = (logits > _STABILITY_OFFSET).flatten(1).sum(1).float()
    outer = (logits > -_STABILITY_OFFSET).flatten(1).sum(1).float()
    return inner / outer.clamp(min=1)


def _bounding_boxes(masks: "torch.Tensor") -> "torch.Tensor":
    """Returns left, upper, right and lower edges of non-empty masks."""
    columns, rows = masks.any(1).int(), masks.any(2).int()
    width, height = columns.shape[1], rows.shape[1]
    import torch

    edges = [
        columns.argmax(1),
        rows.argmax(1),
        width - columns.flip(1).argmax(1),
        height - rows.flip(1).argmax(1),
    ]
    return torch.stack(edges, -1).float()


def _bounding_box(mask: "NDArray[np.bool_]") -> tuple[float, float, float, float]:
    import numpy as np

    columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    if not columns.size:  # too thin to survive the resizing
        return 0.0, 0.0, 0.0, 0.0
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
