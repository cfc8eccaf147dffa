"""Handler base class of diffusers pipelines that generate one picture per call."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.diffusion.image_size import ModelResolution
from experts.host.handler import Call, Inputs, Outputs, Parameters
from experts.host.input_validation import parameter_port
from experts.host.media import png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.pipelines import PipelineHandler, PipelineItem
from services.common.errors import InvalidRequest, ModelFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

MAX_DEFAULT_STEPS = 30
"""Limit of a pipeline's default, which dates from slower schedulers (50 to 100); a card's default has no limit."""
_MAX_PROMPT_CHARACTERS = 5_000
_SEED_LIMIT = 2**53
_OPTIONAL_PARAMETERS = ("negative_prompt", "guidance_scale", "strength")


@dataclass(frozen=True)
class GenerationItem(PipelineItem):
    """One call's arguments for the pipeline, with seed, file name and postprocessing."""

    postprocess: "Callable[[Image], Image]" = lambda picture: picture
    """Applied to the generated picture, such as cropping it to the requested size."""


@dataclass(frozen=True)
class GeneratedPicture:
    """A generated picture with its item; pixels are height x width x 3, from 0 to 1."""

    pixels: "NDArray[Any]"
    is_blocked: bool
    """Whether the model's safety checker has blackened the picture."""
    item: GenerationItem


class DiffusionHandler(PipelineHandler):
    """Generates a picture per item with a diffusers pipeline; subclasses build its arguments in prepare."""

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        super().__init__(checkpoint, model)
        self.resolution = ModelResolution.from_pipeline(model)
        self.set_batch_limits(default_cost=self.resolution.side**2 * self._default_steps())

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        raise NotImplementedError

    def cost(self, item: GenerationItem) -> float:
        """Returns the pixels of the picture times the number of steps."""
        return float(self.count_pixels(item) * item.arguments["num_inference_steps"])

    def count_pixels(self, item: GenerationItem) -> int:
        """Returns the pixels of the generated picture."""
        arguments = item.arguments
        if "width" in arguments:
            return int(arguments["width"] * arguments["height"])
        if "image" in arguments:
            return int(arguments["image"].width * arguments["image"].height)
        return self.resolution.side**2

    def run(self, items: Sequence[GenerationItem], call: Call) -> list[GeneratedPicture]:
        """Returns a picture per item, or an empty list if the call is cancelled."""
        output = self.generate(items, call)
        if output is None:
            return []
        blocked = getattr(output, "nsfw_content_detected", None) or [False] * len(items)
        return [
            GeneratedPicture(pixels, bool(is_blocked), item)
            for pixels, is_blocked, item in zip(output.images, blocked, items, strict=True)
        ]

    def finish(self, raw: GeneratedPicture) -> Outputs:
        from diffusers.image_processor import VaeImageProcessor

        if raw.is_blocked:
            raise InvalidRequest(
                f"the safety checker of {self.model_id} blocked the generated picture",
                remedy="use another text or another seed",
            )
        if not _is_finite(raw.pixels):
            raise ModelFailed(
                f"{self.model_id} failed on this input: the picture is not finite",
                remedy="try another seed, or ask the operator to run the model in float32 (EXPERT_DEVICES)",
            )
        picture = raw.item.postprocess(VaeImageProcessor.numpy_to_pil(raw.pixels[None])[0])
        return {"image": png(picture, raw.item.name)}

    def build_arguments(self, parameters: Parameters, prompt: str, **extra: Any) -> dict[str, Any]:
        """Returns the pipeline's arguments: the requested parameters, else those of the card, and the steps.

        Raises:
            InvalidRequest: the pipeline has no such parameter.
        """
        requested = {name: parameters[name] for name in _OPTIONAL_PARAMETERS if name in parameters}
        if missing := next((name for name in requested if name not in self._pipeline_parameters), None):
            raise InvalidRequest(
                f"{self.model_id} has no parameter {missing}",
                remedy=f"omit {missing}, or choose another model",
                port=parameter_port(missing),
            )
        steps = parameters.get("num_inference_steps") or self._default_steps()
        return {**self.card_arguments, "prompt": prompt, "num_inference_steps": steps, **requested, **extra}

    def _default_steps(self) -> int:
        steps = int(self.default_value("num_inference_steps"))
        return steps if "num_inference_steps" in self.card_arguments else min(steps, MAX_DEFAULT_STEPS)


def read_prompt(inputs: Inputs, port: str) -> str:
    """Returns the stripped text on a port.

    Raises:
        InvalidRequest: it is empty or longer than 5,000 characters.
    """
    text = str(inputs.get(port) or "").strip()
    if not text:
        raise InvalidRequest(f"input {port} has no text", remedy="describe what the picture should show", port=port)
    if len(text) > _MAX_PROMPT_CHARACTERS:
        raise InvalidRequest(
            f"input {port} has {len(text)} characters, the limit is {_MAX_PROMPT_CHARACTERS}",
            remedy="shorten the text: most models read only about the first 75 words",
            port=port,
        )
    return text


def choose_seed(parameters: Parameters) -> int:
    """Returns the requested seed, or a random one."""
    seed = parameters.get("seed")
    return secrets.randbelow(_SEED_LIMIT) if seed is None else int(seed)


def _is_finite(pixels: "NDArray[Any]") -> bool:
    import numpy as np

    return bool(np.isfinite(pixels).all())
