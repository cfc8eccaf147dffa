"""Videos from words or from a picture, by diffusion: whichever pipeline a model names for itself."""

import inspect
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from experts.host.handler import UNBATCHED, Batching, Call, Handler, Inputs, Outputs, Parameters
from experts.host.media import open_image, renamed
from experts.host.parameters import port_of
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler
from experts.video.frames import written
from services.common.errors import FailedPrecondition, InvalidRequest, ModelFailed

_USUAL_RATE = 8.0
_RATES: Mapping[str, float] = {"Wan": 16.0, "LTX": 24.0, "Hunyuan": 24.0, "StableVideoDiffusion": 7.0, "Cog": 8.0}
"""Frames a second, by how the pipeline's name begins; most were taught with 8."""
_LARGEST_SEED = 2**53
_LONGEST_TEXT = 5_000
_SHAPELESS = "StableVideoDiffusion"
"""A pipeline that distorts an image to the requested size."""
_GRID = 64
"""Sides of a picture are multiples of it."""
_OPTIONS = ("num_frames", "num_inference_steps", "guidance_scale")


def text_to_video(model_id: str, device: str) -> Handler:
    """Any pipeline that takes a prompt and gives frames."""
    return Maker(*_loaded(model_id, device, "prompt"))


def image_to_video(model_id: str, device: str) -> Handler:
    """Any pipeline that takes a picture and gives frames; many take words as well."""
    return Maker(*_loaded(model_id, device, "image"))


@dataclass(frozen=True)
class GenerationItem:
    """One caller's."""

    options: Mapping[str, Any]
    seed: int
    name: str


class Maker(TorchHandler):
    batching: ClassVar[Batching] = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, pipeline: Any) -> None:
        super().__init__(checkpoint, pipeline)
        self._takes = inspect.signature(type(pipeline).__call__).parameters
        kind = type(pipeline).__name__
        self._rate = next((rate for name, rate in _RATES.items() if kind.startswith(name)), _USUAL_RATE)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        options = {name: parameters[name] for name in _OPTIONS if parameters.get(name) is not None}
        unknown = options.keys() - self._takes.keys()
        if unknown:
            raise InvalidRequest(
                f"{self.model_id} has no {min(unknown)} to set", port=port_of(min(unknown)), remedy="leave it out"
            )
        name = "video"
        if "image" in inputs:
            image = open_image(inputs["image"])
            if options.get("num_frames", 2) < 2:  # noqa: PLR2004
                raise InvalidRequest(
                    "a video of one frame does not move",
                    port=port_of("num_frames"),
                    remedy="ask for a num_frames of 2 or more",
                )
            image = image.resize((max(image.width, _GRID), max(image.height, _GRID)))  # a few dots cannot be blurred
            options |= {"image": image, **self._size(image.width / image.height)}
            name = renamed(inputs["image"], "video", "mp4").removesuffix(".mp4")
        if "prompt" in self._takes:
            options["prompt"] = self._prompt(inputs)
        seed = parameters.get("seed")
        return GenerationItem(options, secrets.randbelow(_LARGEST_SEED) if seed is None else int(seed), name)

    def cost(self, item: GenerationItem) -> float:
        return float(item.options.get("num_frames", 1))

    def run(self, items: Sequence[GenerationItem], call: Call) -> list[tuple[Any, str]]:
        made = []
        for item in items:
            try:
                made.append((self._made(item, call), item.name))
            except StoppedError:
                return []
        return made

    def finish(self, raw: tuple[Any, str]) -> Outputs:
        import numpy as np

        frames, name = raw
        if not np.isfinite(frames).all():
            raise ModelFailed("the model made pictures that are not finite", remedy="try another seed or another model")
        return {"video": written((frames.clip(0, 1) * 255).round().astype(np.uint8), self._rate, name)}

    def _made(self, item: GenerationItem, call: Call) -> Any:
        """Frames as floats, one after the other."""
        import numpy as np
        import torch

        self.model.progress_bar = Steps.counted(call)
        chosen = {"generator": torch.Generator().manual_seed(item.seed), "output_type": "np", **item.options}
        with inference_context(self.model_id):
            frames = self.model(**{name: value for name, value in chosen.items() if name in self._takes}).frames[0]
        return np.asarray(frames, dtype=np.float32)

    def _prompt(self, inputs: Inputs) -> str:
        text = str(inputs.get("text", "")).strip()
        if not text and "image" not in inputs:
            raise InvalidRequest("the text is empty", port="text", remedy="say what the video should show")
        if len(text) > _LONGEST_TEXT:
            raise InvalidRequest(
                f"the text has {len(text)} characters, the limit is {_LONGEST_TEXT}",
                port="text",
                reason="TOO_LARGE",
                remedy="say it shorter: most models read the first 75 words or so",
            )
        return text

    def _size(self, ratio: float) -> dict[str, int]:
        """As many pixels as the model was taught with, in the shape of the picture; most others cut it to theirs."""
        if not type(self.model).__name__.startswith(_SHAPELESS):
            return {}
        side = self.model.unet.config.sample_size
        usual = side * self.model.vae_scale_factor
        area, grid = usual**2, min(_GRID, usual // 4)
        ratio = min(max(ratio, 0.5), 2.0)
        sides = {"height": math.sqrt(area / ratio), "width": math.sqrt(area * ratio)}
        return {name: max(grid, round(length / grid) * grid) for name, length in sides.items()}


class StoppedError(Exception):
    """Raised when the call is cancelled."""


@dataclass
class Steps:
    """What a pipeline takes for its progress bar; all pipelines have one, and few another way to be stopped."""

    call: Call
    total: int
    things: Iterable[Any] = ()
    done: int = 0

    @classmethod
    def counted(cls, call: Call) -> "Callable[..., Steps]":
        """What makes the bars of one call."""

        def bar(iterable: Any = None, total: int | None = None) -> Steps:
            things = list(iterable) if iterable is not None else []
            return cls(call, total or len(things) or 1, things)

        return bar

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        for thing in self.things:
            yield thing
            self.update()

    def update(self, count: int = 1) -> None:
        self.done += count
        self.call.progress(min(1.0, self.done / self.total), f"step {self.done} of {self.total}")
        if self.call.cancelled:
            raise StoppedError


def _loaded(model_id: str, device: str, wanted: str) -> tuple[Checkpoint, Any]:
    from diffusers import DiffusionPipeline

    checkpoint = Checkpoint.fetch(model_id, device)
    pipeline = checkpoint.pipeline(DiffusionPipeline)
    if wanted not in inspect.signature(type(pipeline).__call__).parameters:
        raise FailedPrecondition(
            f"{model_id} is a {type(pipeline).__name__}, which takes no {wanted}",
            reason="LOAD_FAILED",
            remedy="take a model that is made for this task",
        )
    return checkpoint, pipeline
