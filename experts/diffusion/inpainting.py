"""Filling the masked part of a picture; the rest of it stays as it was, to the pixel."""

from functools import partial
from typing import TYPE_CHECKING

from experts.diffusion.checkpoints import assembled, checkpoint_of
from experts.diffusion.generation import Order, Painter, seed_of, words
from experts.diffusion.image_size import Size, wanted
from experts.host.handler import Handler, Inputs, Parameters
from experts.host.media import open_image, renamed
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from PIL.Image import Image

_WHITE = 128


def inpainting(model_id: str, device: str) -> Handler:
    """Any pipeline that fills a mask."""
    from diffusers import AutoPipelineForInpainting

    checkpoint = checkpoint_of(model_id, device)
    return Filler(checkpoint, assembled(checkpoint, AutoPipelineForInpainting))


class Filler(Painter):
    """Paints where a mask is white."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Order:
        prompt, media = words(inputs, "text"), inputs["image"]
        picture, mask = open_image(media), _mask(open_image(inputs["mask"], port="mask"))
        _check(picture, mask)
        size = Size(*picture.size)
        if asked := wanted(parameters, size):
            picture, mask, size = picture.resize(asked), _mask(mask.resize(asked)), asked
            work = self.canvas.above(asked)
        else:
            work = self.canvas.like(size, "image")
        given = {"image": picture.resize(work), "mask_image": _mask(mask.resize(work)), **work._asdict()}
        framed = partial(_laid_in, picture=picture, mask=mask)
        return Order(
            self.arguments(parameters, prompt, **given), seed_of(parameters), renamed(media, "filled", "png"), framed
        )


def _mask(picture: "Image") -> "Image":
    """White where there is to be painted, black elsewhere, and nothing between."""
    return picture.convert("L").point(lambda grey: 255 if grey >= _WHITE else 0)


def _check(picture: "Image", mask: "Image") -> None:
    if mask.size != picture.size:
        raise InvalidRequest(
            f"the mask has {mask.width} x {mask.height} pixels, the picture {picture.width} x {picture.height}",
            remedy="send a mask of the picture's size",
            port="mask",
        )
    if not mask.getbbox():
        raise InvalidRequest("the mask is black throughout", remedy="make white what is to be painted", port="mask")


def _laid_in(painted: "Image", picture: "Image", mask: "Image") -> "Image":
    from PIL import Image

    return Image.composite(painted.resize(picture.size), picture, mask)
