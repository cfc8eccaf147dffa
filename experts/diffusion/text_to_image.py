"""Pictures from words alone."""

from functools import partial
from typing import TYPE_CHECKING

from experts.diffusion.checkpoints import assembled, checkpoint_of
from experts.diffusion.generation import Order, Painter, seed_of, words
from experts.diffusion.image_size import Size, wanted
from experts.host.handler import Handler, Inputs, Parameters

if TYPE_CHECKING:
    from PIL.Image import Image


def text_to_image(model_id: str, device: str) -> Handler:
    """Any pipeline that paints from words."""
    from diffusers import AutoPipelineForText2Image

    checkpoint = checkpoint_of(model_id, device)
    return FromWords(checkpoint, assembled(checkpoint, AutoPipelineForText2Image))


class FromWords(Painter):
    """Paints what a text says."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Order:
        size = wanted(parameters, Size(self.canvas.side, self.canvas.side))
        arguments = self.arguments(parameters, words(inputs, "text"))
        if size is None:
            return Order(arguments, seed_of(parameters), "picture.png")
        arguments |= self.canvas.above(size)._asdict()
        return Order(arguments, seed_of(parameters), "picture.png", partial(cut, size=size))


def cut(picture: "Image", size: Size) -> "Image":
    """The middle of a picture that is a little too large."""
    left, top = (picture.width - size.width) // 2, (picture.height - size.height) // 2
    return picture.crop((left, top, left + size.width, top + size.height))
