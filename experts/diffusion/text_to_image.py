"""Text to image."""

from functools import partial
from typing import TYPE_CHECKING

from experts.diffusion.generation import DiffusionHandler, GenerationItem, choose_seed, read_prompt
from experts.diffusion.image_size import Size, read_size
from experts.host.handler import Handler, Inputs, Parameters
from experts.torch_host.pipelines import fetch_pipeline, load_pipeline

if TYPE_CHECKING:
    from PIL.Image import Image


def text_to_image(model_id: str, device: str) -> Handler:
    """Loads any pipeline that generates pictures from text."""
    from diffusers import AutoPipelineForText2Image

    checkpoint = fetch_pipeline(model_id, device)
    return TextToImage(checkpoint, load_pipeline(checkpoint, AutoPipelineForText2Image))


class TextToImage(DiffusionHandler):
    """Handler of the task text-to-image."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        size = read_size(parameters, Size(self.resolution.side, self.resolution.side))
        arguments = self.build_arguments(parameters, read_prompt(inputs, "text"))
        if size is None:
            return GenerationItem(arguments, choose_seed(parameters), "picture.png")
        arguments |= self.resolution.round_up(size)._asdict()
        return GenerationItem(arguments, choose_seed(parameters), "picture.png", partial(crop_centre, size=size))


def crop_centre(picture: "Image", size: Size) -> "Image":
    """Crops a picture to its centre."""
    left, top = (picture.width - size.width) // 2, (picture.height - size.height) // 2
    return picture.crop((left, top, left + size.width, top + size.height))
