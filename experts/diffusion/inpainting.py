"""Inpainting: generates the masked part of a picture; all other pixels stay unchanged."""

from functools import partial
from typing import TYPE_CHECKING

from experts.diffusion.generation import DiffusionHandler, GenerationItem, choose_seed, read_prompt
from experts.diffusion.image_size import Size, read_size
from experts.host.handler import Handler, Inputs, Parameters
from experts.host.media import derive_name, open_image
from experts.torch_host.pipelines import fetch_pipeline, load_pipeline
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from PIL.Image import Image

_MASK_THRESHOLD = 128


def inpainting(model_id: str, device: str) -> Handler:
    """Loads any pipeline that inpaints by mask."""
    from diffusers import AutoPipelineForInpainting

    checkpoint = fetch_pipeline(model_id, device)
    return InpaintingHandler(checkpoint, load_pipeline(checkpoint, AutoPipelineForInpainting))


class InpaintingHandler(DiffusionHandler):
    """Handler of the task inpainting: generates the pixels where the mask is white."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        prompt, media = read_prompt(inputs, "text"), inputs["image"]
        picture, mask = open_image(media), binarize(open_image(inputs["mask"], port="mask"))
        _check_mask(picture, mask)
        size = Size(*picture.size)
        if requested := read_size(parameters, size):
            picture, mask, size = picture.resize(requested), binarize(mask.resize(requested)), requested
            model_size = self.resolution.round_up(requested)
        else:
            model_size = self.resolution.fit(size, "image")
        extra = {
            "image": picture.resize(model_size),
            "mask_image": binarize(mask.resize(model_size)),
            **model_size._asdict(),
        }
        postprocess = partial(_composite, picture=picture, mask=mask)
        return GenerationItem(
            self.build_arguments(parameters, prompt, **extra),
            choose_seed(parameters),
            derive_name(media, "filled", "png"),
            postprocess,
        )


def binarize(picture: "Image") -> "Image":
    """Returns the mask in black and white; white marks the part to generate."""
    return picture.convert("L").point(lambda grey: 255 if grey >= _MASK_THRESHOLD else 0)


def _check_mask(picture: "Image", mask: "Image") -> None:
    if mask.size != picture.size:
        raise InvalidRequest(
            f"the mask has {mask.width} x {mask.height} pixels, the picture {picture.width} x {picture.height}",
            remedy="send a mask of the picture's size",
            port="mask",
        )
    if not mask.getbbox():
        raise InvalidRequest("the mask is black throughout", remedy="make the part to generate white", port="mask")


def _composite(generated: "Image", picture: "Image", mask: "Image") -> "Image":
    from PIL import Image

    return Image.composite(generated.resize(picture.size), picture, mask)
