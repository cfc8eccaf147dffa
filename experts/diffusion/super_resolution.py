"""Super-resolution: by a network that processes tiles, or by a diffusion pipeline for small pictures."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from experts.diffusion.generation import DiffusionHandler, GenerationItem
from experts.diffusion.image_size import MAX_PIXELS
from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.input_validation import parameter_port
from experts.host.media import derive_name, open_image, png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.pipelines import fetch_pipeline, load_pipeline
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest, ModelFailed

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

_MAX_DIFFUSION_PIXELS = 512 * 512
_TILE, _MARGIN = 256, 16
"""Side of a tile in pixels, and the margin that it shares with its neighbours to avoid visible seams."""
_DIFFUSION_FACTOR = 4
_DECODER_TILE = 256
"""Side of the tiles that the diffusion pipeline decodes, in pixels of the input; they overlap by a quarter."""
_SIDE_MULTIPLE = 8
"""Sides of the diffusion pipeline's input are multiples of this."""
_SEED = 0
"""The task has no parameter seed: the same input always gives the same picture."""


def image_super_resolution(model_id: str, device: str) -> Handler:
    """Loads the upscaler of diffusers, or a Swin2SR of transformers."""
    checkpoint = fetch_pipeline(model_id, device)
    if (checkpoint.folder / "model_index.json").is_file():
        from diffusers import StableDiffusionUpscalePipeline

        return DiffusionUpscaler(checkpoint, load_pipeline(checkpoint, StableDiffusionUpscalePipeline))
    from transformers import AutoModelForImageToImage

    return TiledUpscaler(checkpoint, checkpoint.model(AutoModelForImageToImage))


class DiffusionUpscaler(DiffusionHandler):
    """Enlarges a small picture four times by diffusion."""

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        super().__init__(checkpoint, model)
        # The decoder's attention is over all pixels of the input; in larger tiles it needs more memory than GPUs have.
        model.vae.enable_tiling()
        model.vae.tile_latent_min_size = _DECODER_TILE
        model.vae.tile_sample_min_size = _DECODER_TILE * _DIFFUSION_FACTOR

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        media = inputs["image"]
        picture = open_image(media)
        _check_size(picture, max_pixels=_MAX_DIFFUSION_PIXELS)
        model_size = [math.ceil(side / _SIDE_MULTIPLE) * _SIDE_MULTIPLE for side in picture.size]
        arguments = self.build_arguments({}, "", image=picture.resize(model_size), guidance_scale=1.0)
        size = _scale_size(picture, _read_scale(parameters, _DIFFUSION_FACTOR, self.model_id))
        return GenerationItem(arguments, _SEED, derive_name(media, "enlarged", "png"), partial(_resize, size=size))

    def count_pixels(self, item: GenerationItem) -> int:
        return super().count_pixels(item) * _DIFFUSION_FACTOR**2


@dataclass(frozen=True)
class UpscaleItem:
    """A picture with its requested size and its output file name."""

    picture: "Image"
    size: tuple[int, int]
    name: str


class TiledUpscaler(TorchHandler):
    """Enlarges by a fixed factor, tile by tile, with a network."""

    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        super().__init__(checkpoint, model)
        self._factor: int = model.config.upscale

    def prepare(self, inputs: Inputs, parameters: Parameters) -> UpscaleItem:
        media = inputs["image"]
        picture = open_image(media)
        scale = _read_scale(parameters, self._factor, self.model_id)
        _check_size(picture, max_pixels=MAX_PIXELS)
        return UpscaleItem(picture, _scale_size(picture, scale), derive_name(media, "enlarged", "png"))

    def cost(self, item: UpscaleItem) -> float:
        return float(item.picture.width * item.picture.height)

    def run(self, items: Sequence[UpscaleItem], call: Call) -> list[tuple["torch.Tensor", UpscaleItem]]:
        """Returns the enlarged pictures, or an empty list if the call is cancelled."""
        raws = []
        with inference_context(self.model_id):
            for item in items:
                pixels = self._upscale(item.picture, call)
                if pixels is None:
                    return []
                raws.append((pixels, item))
        return raws

    def finish(self, raw: tuple["torch.Tensor", UpscaleItem]) -> Outputs:
        from PIL import Image

        pixels, item = raw
        if not pixels.isfinite().all():
            raise ModelFailed(
                f"{self.model_id} failed on this input: the picture is not finite",
                remedy="try another picture or another model",
            )
        picture = Image.fromarray((pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy())
        return {"image": png(_resize(picture, item.size), item.name)}

    def _upscale(self, picture: "Image", call: Call) -> "torch.Tensor | None":
        import torch

        source = _to_tensor(picture)
        height, width = source.shape[1:]
        result = torch.empty(3, height * self._factor, width * self._factor)
        tiles = list(_tile_positions(height, width))
        for done, (top, left) in enumerate(tiles):
            if call.cancelled:
                return None
            call.progress(done / len(tiles), f"tile {done + 1} of {len(tiles)}")
            self._upscale_tile(result, source, top, left)
        return result

    def _upscale_tile(self, result: "torch.Tensor", source: "torch.Tensor", top: int, left: int) -> None:
        """Enlarges a tile with its margin, and copies the tile without the margin into the result."""
        factor = self._factor
        region_top, region_left = max(0, top - _MARGIN), max(0, left - _MARGIN)
        region = source[:, region_top : top + _TILE + _MARGIN, region_left : left + _TILE + _MARGIN]
        enlarged = self._run_model(region)
        height, width = min(_TILE, source.shape[1] - top), min(_TILE, source.shape[2] - left)
        y, x = (top - region_top) * factor, (left - region_left) * factor
        target = result[:, top * factor : (top + height) * factor, left * factor : (left + width) * factor]
        target.copy_(enlarged[:, y : y + height * factor, x : x + width * factor])

    def _run_model(self, region: "torch.Tensor") -> "torch.Tensor":
        """Runs the model, padded to multiples of its window: its own mirror padding fails for small pictures."""
        from torch.nn.functional import pad

        window = self.model.config.window_size
        height, width = region.shape[1:]
        padded = pad(region, (0, -width % window, 0, -height % window), mode="replicate")
        out = self.model(padded[None].to(self.model.device, self.model.dtype)).reconstruction[0].float().cpu()
        enlarged: torch.Tensor = out[:, : height * self._factor, : width * self._factor]
        return enlarged


def _tile_positions(height: int, width: int) -> Iterator[tuple[int, int]]:
    for top in range(0, height, _TILE):
        for left in range(0, width, _TILE):
            yield top, left


def _to_tensor(picture: "Image") -> "torch.Tensor":
    import numpy as np
    import torch

    return torch.from_numpy(np.array(picture, dtype=np.float32) / 255).permute(2, 0, 1)


def _read_scale(parameters: Parameters, factor: int, model_id: str) -> float:
    scale = float(parameters.get("scale", factor))
    if scale > factor:
        raise InvalidRequest(
            f"parameter scale: {model_id} enlarges {factor} times at most, not {scale:g}",
            port=parameter_port("scale"),
            remedy="request a smaller scale, or enlarge the result again",
        )
    return scale


def _check_size(picture: "Image", *, max_pixels: int) -> None:
    width, height = picture.size
    if width * height > max_pixels:
        raise InvalidRequest(
            f"the picture has {width} x {height} pixels; this model enlarges at most {max_pixels}",
            remedy=f"reduce it {math.sqrt(width * height / max_pixels):.1f} times first, or choose another model",
            port="image",
        )


def _scale_size(picture: "Image", scale: float) -> tuple[int, int]:
    return round(picture.width * scale), round(picture.height * scale)


def _resize(picture: "Image", size: tuple[int, int]) -> "Image":
    return picture if picture.size == size else picture.resize(size)
