"""Pictures from a picture and words: another like it, or itself with a change."""

import json

from experts.diffusion.checkpoints import assembled, checkpoint_of
from experts.diffusion.generation import Order, Painter, seed_of, words
from experts.diffusion.image_size import Size
from experts.host.handler import Handler, Inputs, Parameters
from experts.host.media import open_image, renamed
from experts.host.parameters import port_of
from experts.torch_host.checkpoint import Checkpoint
from services.common.errors import InvalidRequest

_FARTHEST, _REACH = 1.0, 2.0
"""How much of the picture an editor keeps at strength 1, and how much more at 0; its usual 1.5 is at 0.75."""


def image_to_image(model_id: str, device: str) -> Handler:
    """An editor that follows instructions, or any pipeline that starts from a picture."""
    import diffusers

    checkpoint = checkpoint_of(model_id, device)
    name = _pipeline_name(checkpoint)
    if "InstructPix2Pix" in name:
        return Editor(checkpoint, assembled(checkpoint, getattr(diffusers, name)))
    return FromPicture(checkpoint, assembled(checkpoint, diffusers.AutoPipelineForImage2Image))


class FromPicture(Painter):
    """Paints what the words say, starting from a picture."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Order:
        prompt, media = words(inputs, "instruction"), inputs["image"]
        picture = open_image(media)
        size = self.canvas.like(Size(*picture.size), "image")
        arguments = self.arguments(parameters, prompt, image=picture.resize(size))
        strength = arguments.get("strength", self.default("strength") if "strength" in self._takes else 1)
        if int(arguments["num_inference_steps"] * strength) < 1:
            raise InvalidRequest(
                f"with strength {strength} and {arguments['num_inference_steps']} steps there is nothing to do",
                remedy="raise strength or num_inference_steps, so that their product is at least 1",
                port=port_of("strength"),
            )
        return Order(arguments, seed_of(parameters), renamed(media, "repainted", "png"))


class Editor(Painter):
    """Does to a picture what it is told."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Order:
        prompt, media = words(inputs, "instruction"), inputs["image"]
        picture = open_image(media)
        size = self.canvas.like(Size(*picture.size), "image")
        rest = {name: value for name, value in parameters.items() if name != "strength"}
        arguments = self.arguments(rest, prompt, image=picture.resize(size))
        if "strength" in parameters:
            arguments["image_guidance_scale"] = _FARTHEST + _REACH * (1 - parameters["strength"])
        return Order(arguments, seed_of(parameters), renamed(media, "edited", "png"))


def _pipeline_name(checkpoint: Checkpoint) -> str:
    index = checkpoint.folder / "model_index.json"
    return str(json.loads(index.read_text(encoding="utf-8"))["_class_name"]) if index.is_file() else ""
