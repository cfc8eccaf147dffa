"""Masks for everything in a picture, from points spread over it (Segment Anything)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Outputs
from experts.host.media import box, png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from experts.vision.image_batches import Scene, Seen, Viewer, fitted
from experts.vision.overlays import overlaid

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

_SIDE = 32
"""Points in a row, and rows."""
_POINTS = 64
"""At once."""
_GOOD, _STABLE = 0.88, 0.95
"""Least quality as the model foresees it, and least likeness of a mask to itself when its edge is moved."""
_SHIFT = 1.0
_SAME = 0.7
_MOST = 500_000
"""Pixels at which masks are judged."""
_MASKS = 255


@dataclass(frozen=True)
class Masks:
    """Of one picture, the best first."""

    masks: "NDArray[np.bool_]"
    """In the picture's proportions."""
    scores: list[float]
    scene: Scene


def mask_generation(model_id: str, device: str) -> Handler:
    """SAM."""
    from transformers import AutoImageProcessor, SamModel

    checkpoint = Checkpoint.fetch(model_id, device)
    return Masker(checkpoint, checkpoint.model(SamModel), checkpoint.processor(AutoImageProcessor))


class Masker(Viewer):
    def run(self, items: Sequence[Seen], call: Call) -> list[Masks]:
        """Each picture fills the device by itself: its points are the batch."""
        with inference_context(self.model_id):
            return [self._masks(item, call) for item in items if not call.cancelled]

    def finish(self, raw: Masks) -> Outputs:
        import numpy as np
        from PIL import Image

        levels = np.zeros(raw.scene.size[::-1], np.uint8)
        described = []
        for number, (mask, score) in enumerate(zip(raw.masks, raw.scores, strict=True), 1):
            whole = np.asarray(Image.fromarray(mask).resize(raw.scene.size, Image.Resampling.NEAREST))
            levels[whole & (levels == 0)] = number
            described.append({"score": round(score, DIGITS), "area": int(whole.sum()), "box": box(_edges(whole))})
        marked = overlaid(raw.scene.picture(), levels)
        count = len(described)
        return {
            "masks": described,
            "image": png(marked, raw.scene.named("masks")),
            "text": f"{count or 'no'} mask{'' if count == 1 else 's'}",
        }

    def _masks(self, item: Seen, call: Call) -> Masks:
        import torch

        pixels = move_to_device({"pixel_values": item.tensors["pixel_values"]}, self.model)["pixel_values"]
        embeddings = self.model.get_image_embeddings(pixels)
        masks: list[torch.Tensor] = []
        scores: list[torch.Tensor] = []
        for points, share in self._points(item):
            if call.cancelled:
                break
            output = self.model(image_embeddings=embeddings, input_points=points.to(pixels), multimask_output=True)
            good, quality = self._good(output, item)
            masks.append(good)
            scores.append(quality)
            call.progress(share, "masks")
        together, quality = torch.cat(masks), torch.cat(scores)
        kept = distinct(_boxes(together), quality)[:_MASKS]
        return Masks(together[kept].cpu().numpy(), quality[kept].tolist(), item.scene)

    def _points(self, item: Seen) -> "Iterator[tuple[torch.Tensor, float]]":
        """Points in the pixels of the picture as the model sees it, and how far they are."""
        import torch

        height, width = item.tensors["reshaped_input_sizes"][0].tolist()
        steps = (torch.arange(_SIDE) + 0.5) / _SIDE
        rows, columns = torch.meshgrid(steps * height, steps * width, indexing="ij")
        grid = torch.stack([columns, rows], -1).reshape(1, -1, 1, 2)
        for start in range(0, grid.shape[1], _POINTS):
            part = grid[:, start : start + _POINTS]
            yield part, (start + part.shape[1]) / grid.shape[1]

    def _good(self, output: Any, item: Seen) -> "tuple[torch.Tensor, torch.Tensor]":
        """Masks that are worth keeping, in the picture's proportions, and their quality."""
        quality = require_finite(output.iou_scores.float(), self.model_id).flatten().clamp(max=1)
        logits = require_finite(output.pred_masks.float(), self.model_id).flatten(0, 2)
        good = quality >= _GOOD
        enlarged = self._enlarged(logits[good], item)
        stable = _stability(enlarged) >= _STABLE
        masks = enlarged[stable] > 0
        there = masks.flatten(1).any(1)
        return masks[there], quality[good][stable][there]

    def _enlarged(self, logits: "torch.Tensor", item: Seen) -> "torch.Tensor":
        """Without the padding that makes the picture square for the model."""
        import torch

        height, width = item.tensors["reshaped_input_sizes"][0].tolist()
        side = item.tensors["pixel_values"].shape[-1]
        scale = logits.shape[-1] / side
        within = logits[:, : max(1, round(height * scale)), : max(1, round(width * scale))]
        columns, rows = fitted(item.scene.size, _MOST)
        return torch.nn.functional.interpolate(within[:, None], (rows, columns), mode="bilinear")[:, 0]


def distinct(boxes: "torch.Tensor", scores: "torch.Tensor") -> list[int]:
    """The best first; what covers the box of a better one is the same thing again."""
    import torch

    kept: list[int] = []
    for place in scores.argsort(descending=True, stable=True).tolist():
        if not kept or float(_overlaps(boxes[place], boxes[torch.tensor(kept, device=boxes.device)]).max()) <= _SAME:
            kept.append(place)
    return kept


def _overlaps(one: "torch.Tensor", others: "torch.Tensor") -> "torch.Tensor":
    """Intersection over union."""
    import torch

    low, high = torch.maximum(one[:2], others[:, :2]), torch.minimum(one[2:], others[:, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = (others[:, 2:] - others[:, :2]).prod(-1) + (one[2:] - one[:2]).prod()
    return shared / (areas - shared)


def _stability(logits: "torch.Tensor") -> "torch.Tensor":
    """How much of the larger mask the smaller one is, when the edge is moved outwards and inwards."""
    inner = (logits > _SHIFT).flatten(1).sum(1).float()
    outer = (logits > -_SHIFT).flatten(1).sum(1).float()
    return inner / outer.clamp(min=1)


def _boxes(masks: "torch.Tensor") -> "torch.Tensor":
    """Left, upper, right and lower edges of masks that are not empty."""
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


def _edges(mask: "NDArray[np.bool_]") -> tuple[float, float, float, float]:
    import numpy as np

    columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    if not columns.size:  # too thin for the size that it was judged in
        return 0.0, 0.0, 0.0, 0.0
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
