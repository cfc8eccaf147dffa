"""Pictures that keep to a map: a ControlNet of any kind, on the Stable Diffusion it was made for."""

import json
import threading
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from experts.diffusion.checkpoints import assembled, at_commit, checkpoint_of
from experts.diffusion.generation import Order, Painter, seed_of, words
from experts.diffusion.image_size import Size, wanted
from experts.diffusion.text_to_image import cut
from experts.host import load_context
from experts.host.handler import Handler, Inputs, Parameters
from experts.host.media import open_image, renamed
from experts.torch_host.checkpoint import Checkpoint
from services.common.errors import FailedPrecondition


class Base(NamedTuple):
    """A model that ControlNets steer."""

    model_id: str
    commit: str


BASES = {
    768: Base("stable-diffusion-v1-5/stable-diffusion-v1-5", "451f4fe16113bff5a5d2269ed5ad43b0592e9a14"),
    2048: Base("stabilityai/stable-diffusion-xl-base-1.0", "462165984030d82259a11f4367a4eed129e94a7b"),
}
"""By the width of the text that the ControlNet looks at, which tells the families apart."""

_kept: "WeakValueDictionary[tuple[str, str, str], Any]" = WeakValueDictionary()
_lock = threading.Lock()


def map_text_to_image(model_id: str, device: str) -> Handler:
    """One loader for all eight maps: which one a ControlNet knows is on its card."""
    from diffusers import AutoPipelineForText2Image, ControlNetModel

    checkpoint = checkpoint_of(model_id, device)
    if (checkpoint.folder / "model_index.json").is_file():
        return AfterMap(checkpoint, assembled(checkpoint, AutoPipelineForText2Image))
    under = _base_of(checkpoint, device)
    controlnet, base = assembled(checkpoint, ControlNetModel), _base(under)
    return AfterMap(checkpoint, _steered(base, controlnet), base)


class AfterMap(Painter):
    """Paints what a text says where a map says."""

    def __init__(self, checkpoint: Checkpoint, model: Any, base: Any = None) -> None:
        super().__init__(checkpoint, model)
        self._base = base

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Order:
        prompt, media = words(inputs, "text"), inputs["image"]
        drawing = open_image(media)
        like = self.canvas.like(Size(*drawing.size), "image")
        size = wanted(parameters, like) or like
        work = self.canvas.above(size)
        arguments = self.arguments(parameters, prompt, image=drawing.resize(work), **work._asdict())
        return Order(arguments, seed_of(parameters), renamed(media, "picture", "png"), lambda made: cut(made, size))

    def close(self) -> None:
        """Lets go of the base too, which others may still use."""
        self._base = None
        super().close()


def _base_of(checkpoint: Checkpoint, device: str) -> Checkpoint:
    """What the ControlNet was made for.

    Raises:
        FailedPrecondition: LOAD_FAILED, that is not known.
    """
    config = checkpoint.folder / "config.json"
    width = json.loads(config.read_text(encoding="utf-8")).get("cross_attention_dim") if config.is_file() else None
    if width not in BASES:
        raise FailedPrecondition(
            f"{checkpoint.model_id} is made for a model that is not known here (its text is {width} wide)",
            reason="LOAD_FAILED",
            remedy="take a ControlNet for Stable Diffusion 1.5 or XL, or save it as a whole pipeline",
        )
    base = BASES[width]
    with at_commit(base.commit):
        return checkpoint_of(base.model_id, device)


def _base(checkpoint: Checkpoint) -> Any:
    """The pipeline of the base model: one for all ControlNets on a device."""
    from diffusers import AutoPipelineForText2Image

    key = (checkpoint.model_id, str(checkpoint.device), str(checkpoint.dtype))
    with _lock:
        base = _kept.get(key)
        if base is None:
            load_context.current().progress(0.5, f"loading {checkpoint.model_id}")
            base = _kept[key] = assembled(checkpoint, AutoPipelineForText2Image)
        return base


def _steered(base: Any, controlnet: Any) -> Any:
    """The base's own weights, with a scheduler apart: it remembers the steps of its run."""
    import diffusers

    kind = getattr(diffusers, type(base).__name__.replace("Pipeline", "ControlNetPipeline"))
    scheduler = type(base.scheduler).from_config(base.scheduler.config)
    pipeline = kind(**{**base.components, "scheduler": scheduler}, controlnet=controlnet)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
