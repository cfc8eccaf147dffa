"""Image to image: a variation of a picture, or an edit by instruction."""

import json

from experts.diffusion.generation import DiffusionHandler, GenerationItem, choose_seed, read_prompt
from experts.diffusion.image_size import Size
from experts.host.handler import Handler, Inputs, Parameters
from experts.host.input_validation import parameter_port
from experts.host.media import derive_name, open_image
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.pipelines import fetch_pipeline, load_pipeline
from services.common.errors import InvalidRequest

_MIN_IMAGE_GUIDANCE, _IMAGE_GUIDANCE_RANGE = 1.0, 2.0
"""Image guidance of an editor at strength 1, and its increase at strength 0; its default of 1.5 is at 0.75."""


def image_to_image(model_id: str, device: str) -> Handler:
    """Loads an editor that follows instructions, or any pipeline that starts from a picture."""
    import diffusers

    checkpoint = fetch_pipeline(model_id, device)
    name = _pipeline_name(checkpoint)
    if "InstructPix2Pix" in name:
        return InstructionEditor(checkpoint, load_pipeline(checkpoint, getattr(diffusers, name)))
    return ImageToImage(checkpoint, load_pipeline(checkpoint, diffusers.AutoPipelineForImage2Image))


class ImageToImage(DiffusionHandler):
    """Generates a picture by text, starting from a picture."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        prompt, media = read_prompt(inputs, "instruction"), inputs["image"]
        picture = open_image(media)
        size = self.resolution.fit(Size(*picture.size), "image")
        arguments = self.build_arguments(parameters, prompt, image=picture.resize(size))
        strength = arguments.get(
            "strength", self.default_value("strength") if "strength" in self._pipeline_parameters else 1
        )
        if int(arguments["num_inference_steps"] * strength) < 1:
            raise InvalidRequest(
                f"with strength {strength} and {arguments['num_inference_steps']} steps there is nothing to do",
                remedy="raise strength or num_inference_steps, so that their product is at least 1",
                port=parameter_port("strength"),
            )
        return GenerationItem(arguments, choose_seed(parameters), derive_name(media, "repainted", "png"))


class InstructionEditor(DiffusionHandler):
    """Edits a picture by instruction (InstructPix2Pix)."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        prompt, media = read_prompt(inputs, "instruction"), inputs["image"]
        picture = open_image(media)
        size = self.resolution.fit(Size(*picture.size), "image")
        other_parameters = {name: value for name, value in parameters.items() if name != "strength"}
        arguments = self.build_arguments(other_parameters, prompt, image=picture.resize(size))
        if "strength" in parameters:
            arguments["image_guidance_scale"] = _MIN_IMAGE_GUIDANCE + _IMAGE_GUIDANCE_RANGE * (
                1 - parameters["strength"]
            )
        return GenerationItem(arguments, choose_seed(parameters), derive_name(media, "edited", "png"))


def _pipeline_name(checkpoint: Checkpoint) -> str:
    index = checkpoint.folder / "model_index.json"
    return str(json.loads(index.read_text(encoding="utf-8"))["_class_name"]) if index.is_file() else ""
