"""One picture from one call of a diffusers pipeline: seeded, in steps that can be stopped between."""

import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.diffusion.image_size import Canvas
from experts.host.handler import UNBATCHED, Call, Inputs, Outputs, Parameters
from experts.host.media import png
from experts.host.parameters import port_of
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest, ModelFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

MOST_STEPS_UNASKED = 30
"""What pipelines take by default (50 to 100) dates from slower schedulers."""
_LONGEST_TEXT = 5_000
_LARGEST_SEED = 2**53
_NAMES = ("negative_prompt", "guidance_scale", "strength")


@dataclass(frozen=True)
class Order:
    """What one caller wants painted."""

    arguments: Mapping[str, Any]
    """For the pipeline; its generator and what watches its steps are added when it runs."""
    seed: int
    name: str
    """Of the file that comes out."""
    framed: "Callable[[Image], Image]" = lambda picture: picture
    """What is done to the picture in the end, such as cutting it to size."""


@dataclass(frozen=True)
class Painted:
    """A picture as the pipeline made it, height x width x 3 in 0 to 1, and what it was made for."""

    pixels: "NDArray[Any]"
    refused: bool
    """The model's safety checker has blackened it."""
    order: Order


class Painter(TorchHandler):
    """A pipeline; each task's own says in prepare what it is called with."""

    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        super().__init__(checkpoint, model)
        self.canvas = Canvas.of(model)
        self._takes = inspect.signature(type(model).__call__).parameters

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Order:
        raise NotImplementedError

    def cost(self, item: Order) -> float:
        return float(item.arguments["num_inference_steps"])

    def run(self, items: Sequence[Order], call: Call) -> list[Painted]:
        return [painted for item in items if (painted := self._paint(item, call))]

    def finish(self, raw: Painted) -> Outputs:
        from diffusers.image_processor import VaeImageProcessor

        if raw.refused:
            raise InvalidRequest(
                f"the safety checker of {self.model_id} refused the picture that came out",
                remedy="use other words or another seed",
            )
        if not _all_finite(raw.pixels):
            raise ModelFailed(
                f"{self.model_id} failed on this input: the picture is not finite",
                remedy="try another seed, or let the operator run the model in float32 (EXPERT_DEVICES)",
            )
        picture = raw.order.framed(VaeImageProcessor.numpy_to_pil(raw.pixels[None])[0])
        return {"image": png(picture, raw.order.name)}

    def arguments(self, parameters: Parameters, prompt: str, **given: Any) -> dict[str, Any]:
        """For the pipeline: what was asked for, and its own defaults.

        Raises:
            InvalidRequest: this model has no such parameter.
        """
        asked = {name: parameters[name] for name in _NAMES if name in parameters}
        if missing := next((name for name in asked if name not in self._takes), None):
            raise InvalidRequest(
                f"{self.model_id} takes no {missing}",
                remedy=f"leave {missing} out, or choose another",
                port=port_of(missing),
            )
        steps = parameters.get("num_inference_steps") or min(self.default("num_inference_steps"), MOST_STEPS_UNASKED)
        return {"prompt": prompt, "num_inference_steps": steps, **asked, **given}

    def default(self, name: str) -> Any:
        """What the pipeline takes where nothing is said."""
        return self._takes[name].default

    def _paint(self, order: Order, call: Call) -> Painted | None:
        """The picture; nothing if nobody waits for it any more."""
        import torch

        if call.cancelled:
            return None
        generator = torch.Generator().manual_seed(order.seed)  # the CPU's: the same numbers on every device
        try:
            with inference_context(self.model_id):
                out = self.model(
                    **order.arguments, generator=generator, output_type="np", **self._watching(order, call)
                )
        except _NobodyWaitsError:
            return None
        return Painted(out.images[0], bool((getattr(out, "nsfw_content_detected", None) or [False])[0]), order)

    def _watching(self, order: Order, call: Call) -> dict[str, Any]:
        def ended(step: int) -> None:
            if call.cancelled:
                raise _NobodyWaitsError
            total = getattr(self.model, "num_timesteps", None) or order.arguments["num_inference_steps"]
            call.progress(min(1.0, (step + 1) / total), f"step {step + 1} of {total}")

        def on_step_end(_pipeline: Any, step: int, _time: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            ended(step)
            return tensors

        if "callback_on_step_end" in self._takes:
            return {"callback_on_step_end": on_step_end}
        return {"callback": lambda step, _time, _latents: ended(step)} if "callback" in self._takes else {}


class _NobodyWaitsError(Exception):
    """Leaves a pipeline between two steps."""


def words(inputs: Inputs, port: str) -> str:
    """The words on a port.

    Raises:
        InvalidRequest: there are none, or far too many.
    """
    text = str(inputs.get(port) or "").strip()
    if not text:
        raise InvalidRequest(f"input {port} has no text in it", remedy="say what the picture should show", port=port)
    if len(text) > _LONGEST_TEXT:
        raise InvalidRequest(
            f"input {port} has {len(text)} characters, the limit is {_LONGEST_TEXT}",
            remedy="say it shorter: most models read the first 75 words or so",
            port=port,
        )
    return text


def seed_of(parameters: Parameters) -> int:
    """The seed asked for, else one by chance."""
    seed = parameters.get("seed")
    return secrets.randbelow(_LARGEST_SEED) if seed is None else int(seed)


def _all_finite(pixels: "NDArray[Any]") -> bool:
    import numpy as np

    return bool(np.isfinite(pixels).all())
