"""Larger and sharper pictures: a network tile by tile, or diffusion of a small picture at once."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from experts.diffusion.checkpoints import assembled, checkpoint_of
from experts.diffusion.generation import Order, Painter
from experts.diffusion.image_size import MOST_PIXELS
from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.media import open_image, png, renamed
from experts.host.parameters import port_of
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest, ModelFailed

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

_MOST_DIFFUSED = 512 * 512
_TILE, _MARGIN = 256, 16
"""Pixels of a tile's side, and what it sees of its neighbours so that no seam shows."""
_DIFFUSION_FACTOR = 4
_SIDES = 8
"""What is diffused has sides that this divides."""
_SEED = 0
"""The task has no seed: the same picture always comes out the same."""


def image_super_resolution(model_id: str, device: str) -> Handler:
    """Diffusers' upscaler, or a Swin2SR of transformers."""
    checkpoint = checkpoint_of(model_id, device)
    if (checkpoint.folder / "model_index.json").is_file():
        from diffusers import StableDiffusionUpscalePipeline

        return Diffused(checkpoint, assembled(checkpoint, StableDiffusionUpscalePipeline))
    from transformers import AutoModelForImageToImage

    return Tiled(checkpoint, checkpoint.model(AutoModelForImageToImage))


class Diffused(Painter):
    """Paints what a small picture might have shown, four times as wide."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Order:
        media = inputs["image"]
        picture = open_image(media)
        _check(picture, most=_MOST_DIFFUSED)
        work = [math.ceil(side / _SIDES) * _SIDES for side in picture.size]
        arguments = self.arguments({}, "", image=picture.resize(work), guidance_scale=1.0)
        size = _size(picture, _scale(parameters, _DIFFUSION_FACTOR, self.model_id))
        return Order(arguments, _SEED, renamed(media, "enlarged", "png"), partial(_resized, size=size))


@dataclass(frozen=True)
class Enlargement:
    """One picture and the size it shall have."""

    picture: "Image"
    size: tuple[int, int]
    name: str


class Tiled(TorchHandler):
    """A network that enlarges by a fixed factor."""

    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        super().__init__(checkpoint, model)
        self._factor: int = model.config.upscale

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Enlargement:
        media = inputs["image"]
        picture = open_image(media)
        scale = _scale(parameters, self._factor, self.model_id)
        _check(picture, most=MOST_PIXELS)
        return Enlargement(picture, _size(picture, scale), renamed(media, "enlarged", "png"))

    def cost(self, item: Enlargement) -> float:
        return float(item.picture.width * item.picture.height)

    def run(self, items: Sequence[Enlargement], call: Call) -> list[tuple["torch.Tensor", Enlargement]]:
        """Nothing if meanwhile nobody waits any more."""
        raws = []
        with inference_context(self.model_id):
            for item in items:
                pixels = self._enlarged(item.picture, call)
                if pixels is None:
                    return []
                raws.append((pixels, item))
        return raws

    def finish(self, raw: tuple["torch.Tensor", Enlargement]) -> Outputs:
        from PIL import Image

        pixels, item = raw
        if not pixels.isfinite().all():
            raise ModelFailed(f"{self.model_id} failed on this input: the picture is not finite", remedy="try another")
        picture = Image.fromarray((pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy())
        return {"image": png(_resized(picture, item.size), item.name)}

    def _enlarged(self, picture: "Image", call: Call) -> "torch.Tensor | None":
        import torch

        given = _tensor(picture)
        height, width = given.shape[1:]
        made = torch.empty(3, height * self._factor, width * self._factor)
        tiles = list(_tiles(height, width))
        for done, (top, left) in enumerate(tiles):
            if call.cancelled:
                return None
            call.progress(done / len(tiles), f"tile {done + 1} of {len(tiles)}")
            self._fill(made, given, top, left)
        return made

    def _fill(self, made: "torch.Tensor", given: "torch.Tensor", top: int, left: int) -> None:
        """Enlarges a tile with its surroundings, and keeps the tile."""
        factor = self._factor
        above, before = max(0, top - _MARGIN), max(0, left - _MARGIN)
        seen = given[:, above : top + _TILE + _MARGIN, before : left + _TILE + _MARGIN]
        out = self._network(seen)
        height, width = min(_TILE, given.shape[1] - top), min(_TILE, given.shape[2] - left)
        y, x = (top - above) * factor, (left - before) * factor
        target = made[:, top * factor : (top + height) * factor, left * factor : (left + width) * factor]
        target.copy_(out[:, y : y + height * factor, x : x + width * factor])

    def _network(self, seen: "torch.Tensor") -> "torch.Tensor":
        """Its windows want sides that they divide: it pads others itself, but fails where it lacks pixels to mirror."""
        from torch.nn.functional import pad

        window = self.model.config.window_size
        height, width = seen.shape[1:]
        padded = pad(seen, (0, -width % window, 0, -height % window), mode="replicate")
        out = self.model(padded[None].to(self.model.device, self.model.dtype)).reconstruction[0].float().cpu()
        cut: torch.Tensor = out[:, : height * self._factor, : width * self._factor]
        return cut


def _tiles(height: int, width: int) -> Iterator[tuple[int, int]]:
    for top in range(0, height, _TILE):
        for left in range(0, width, _TILE):
            yield top, left


def _tensor(picture: "Image") -> "torch.Tensor":
    import numpy as np
    import torch

    return torch.from_numpy(np.array(picture, dtype=np.float32) / 255).permute(2, 0, 1)


def _scale(parameters: Parameters, factor: int, model_id: str) -> float:
    scale = float(parameters.get("scale", factor))
    if scale > factor:
        raise InvalidRequest(
            f"parameter scale: {model_id} enlarges {factor} times at most, not {scale:g}",
            port=port_of("scale"),
            remedy="ask for less, or enlarge the result once more",
        )
    return scale


def _check(picture: "Image", *, most: int) -> None:
    width, height = picture.size
    if width * height > most:
        raise InvalidRequest(
            f"the picture has {width} x {height} pixels; this model enlarges at most {most}",
            remedy=f"make it smaller first, by {math.sqrt(width * height / most):.1f}, or choose another model",
            port="image",
        )


def _size(picture: "Image", scale: float) -> tuple[int, int]:
    return round(picture.width * scale), round(picture.height * scale)


def _resized(picture: "Image", size: tuple[int, int]) -> "Image":
    return picture if picture.size == size else picture.resize(size)
