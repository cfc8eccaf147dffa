"""Handler base class of diffusers pipelines: one picture per call, seeded, cancellable between steps."""

import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.diffusion.image_size import ModelResolution
from experts.host.handler import UNBATCHED, Call, Inputs, Outputs, Parameters
from experts.host.input_validation import parameter_port
from experts.host.media import png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest, ModelFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

MAX_DEFAULT_STEPS = 30
"""Limit of the default; the defaults of pipelines (50 to 100) date from slower schedulers."""
_MAX_PROMPT_CHARACTERS = 5_000
_SEED_LIMIT = 2**53
_OPTIONAL_PARAMETERS = ("negative_prompt", "guidance_scale", "strength")


@dataclass(frozen=True)
class GenerationItem:
    """One call's arguments for the pipeline, with seed, file name and postprocessing."""

    arguments: Mapping[str, Any]
    """Keyword arguments of the pipeline, without the generator and the step callback."""
    seed: int
    name: str
    """Name of the output file."""
    postprocess: "Callable[[Image], Image]" = lambda picture: picture
    """Applied to the generated picture, such as cropping it to the requested size."""


@dataclass(frozen=True)
class GeneratedPicture:
    """A generated picture with its item; pixels are height x width x 3, from 0 to 1."""

    pixels: "NDArray[Any]"
    is_blocked: bool
    """Whether the model's safety checker has blackened the picture."""
    item: GenerationItem


class DiffusionHandler(TorchHandler):
    """Runs a diffusers pipeline; subclasses build its arguments in prepare."""

    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        super().__init__(checkpoint, model)
        self.resolution = ModelResolution.from_pipeline(model)
        self._pipeline_parameters = inspect.signature(type(model).__call__).parameters

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        raise NotImplementedError

    def cost(self, item: GenerationItem) -> float:
        return float(item.arguments["num_inference_steps"])

    def run(self, items: Sequence[GenerationItem], call: Call) -> list[GeneratedPicture]:
        return [picture for item in items if (picture := self._generate(item, call))]

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
        """Returns the pipeline's arguments: the requested parameters, and the number of steps by default.

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
        steps = parameters.get("num_inference_steps") or min(
            self.default_value("num_inference_steps"), MAX_DEFAULT_STEPS
        )
        return {"prompt": prompt, "num_inference_steps": steps, **requested, **extra}

    def default_value(self, name: str) -> Any:
        """Returns the pipeline's default of a parameter."""
        return self._pipeline_parameters[name].default

    def _generate(self, item: GenerationItem, call: Call) -> GeneratedPicture | None:
        """Returns the picture, or None if the call is cancelled."""
        import torch

        if call.cancelled:
            return None
        generator = torch.Generator().manual_seed(item.seed)  # on the CPU, so that all devices get the same numbers
        try:
            with inference_context(self.model_id):
                output = self.model(
                    **item.arguments, generator=generator, output_type="np", **self._step_callback(item, call)
                )
        except _CallCancelledError:
            return None
        return GeneratedPicture(
            output.images[0], bool((getattr(output, "nsfw_content_detected", None) or [False])[0]), item
        )

    def _step_callback(self, item: GenerationItem, call: Call) -> dict[str, Any]:
        def report_step(step: int) -> None:
            if call.cancelled:
                raise _CallCancelledError
            total = getattr(self.model, "num_timesteps", None) or item.arguments["num_inference_steps"]
            call.progress(min(1.0, (step + 1) / total), f"step {step + 1} of {total}")

        def on_step_end(_pipeline: Any, step: int, _time: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            report_step(step)
            return tensors

        if "callback_on_step_end" in self._pipeline_parameters:
            return {"callback_on_step_end": on_step_end}
        return (
            {"callback": lambda step, _time, _latents: report_step(step)}
            if "callback" in self._pipeline_parameters
            else {}
        )


class _CallCancelledError(Exception):
    """Raised in the step callback to stop the pipeline of a cancelled call."""


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
