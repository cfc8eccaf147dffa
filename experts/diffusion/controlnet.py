"""Text to image conditioned on a control map, by a ControlNet and its Stable Diffusion base model."""

import json
import threading
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from experts.diffusion.generation import DiffusionHandler, GenerationItem, choose_seed, read_prompt
from experts.diffusion.image_size import Size, read_size
from experts.diffusion.text_to_image import crop_centre
from experts.host import load_context
from experts.host.handler import Handler, Inputs, Parameters
from experts.host.media import derive_name, open_image
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.pipelines import count_bytes, fetch_pipeline, load_component, load_pipeline
from services.common.errors import FailedPrecondition


class BaseModel(NamedTuple):
    """A base model of ControlNets."""

    model_id: str
    commit: str


BASE_MODELS = {
    768: BaseModel("stable-diffusion-v1-5/stable-diffusion-v1-5", "451f4fe16113bff5a5d2269ed5ad43b0592e9a14"),
    2048: BaseModel("stabilityai/stable-diffusion-xl-base-1.0", "462165984030d82259a11f4367a4eed129e94a7b"),
}
"""Base models by the ControlNet's text embedding width, which differs between the families."""

_CONTROL_MODE = "control_mode"
"""Argument of a union's pipeline: the number of the kind of map."""

_base_pipelines: "WeakValueDictionary[tuple[str, str, str], Any]" = WeakValueDictionary()
_lock = threading.Lock()


def map_text_to_image(model_id: str, device: str) -> Handler:
    """Loads a ControlNet for one of the eight kinds of map, or a union of several, whose card states `control_mode`."""
    from diffusers import AutoPipelineForText2Image, ControlNetModel, ControlNetUnionModel

    checkpoint = fetch_pipeline(model_id, device)
    if (checkpoint.folder / "model_index.json").is_file():
        return ControlNetTextToImage(checkpoint, load_pipeline(checkpoint, AutoPipelineForText2Image))
    base_checkpoint = _fetch_base(checkpoint, device)
    is_union = _CONTROL_MODE in load_context.current().pipeline.arguments
    controlnet = load_component(checkpoint, ControlNetUnionModel if is_union else ControlNetModel)
    base = _load_base(base_checkpoint)
    return ControlNetTextToImage(checkpoint, _combine(base, controlnet), base)


class ControlNetTextToImage(DiffusionHandler):
    """Generates a picture by text and control map."""

    def __init__(self, checkpoint: Checkpoint, model: Any, base: Any = None) -> None:
        super().__init__(checkpoint, model)
        self._base, self._image = base, "control_image" if _CONTROL_MODE in self.card_arguments else "image"
        if base:
            self.shared_bytes = {f"{base.name_or_path} {base.dtype}": count_bytes(base)}

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        prompt, media = read_prompt(inputs, "text"), inputs["image"]
        control_map = open_image(media)
        default = self.resolution.fit(Size(*control_map.size), "image")
        size = read_size(parameters, default) or default
        model_size = self.resolution.round_up(size)
        arguments = self.build_arguments(
            parameters, prompt, **{self._image: control_map.resize(model_size)}, **model_size._asdict()
        )
        return GenerationItem(
            arguments,
            choose_seed(parameters),
            derive_name(media, "picture", "png"),
            lambda picture: crop_centre(picture, size),
        )

    def close(self) -> None:
        """Releases the base model too, which other ControlNets may still use."""
        self._base = None
        super().close()


def _fetch_base(checkpoint: Checkpoint, device: str) -> Checkpoint:
    """Fetches the base model of the ControlNet.

    Raises:
        FailedPrecondition: LOAD_FAILED, the base model is unknown.
    """
    config = checkpoint.folder / "config.json"
    width = json.loads(config.read_text(encoding="utf-8")).get("cross_attention_dim") if config.is_file() else None
    if width not in BASE_MODELS:
        raise FailedPrecondition(
            f"{checkpoint.model_id} has no known base model (its text embeddings have width {width})",
            reason="LOAD_FAILED",
            remedy="choose a ControlNet for Stable Diffusion 1.5 or XL, or save it as a complete pipeline",
        )
    base = BASE_MODELS[width]
    with load_context.use_revision(base.commit):
        return fetch_pipeline(base.model_id, device)


def _load_base(checkpoint: Checkpoint) -> Any:
    """Loads the pipeline of the base model; all ControlNets on a device share one."""
    from diffusers import AutoPipelineForText2Image

    key = (checkpoint.model_id, str(checkpoint.device), str(checkpoint.dtype))
    with _lock:
        base = _base_pipelines.get(key)
        if base is None:
            load_context.current().progress(0.5, f"loading {checkpoint.model_id}")
            base = _base_pipelines[key] = load_pipeline(checkpoint, AutoPipelineForText2Image)
        return base


def _combine(base: Any, controlnet: Any) -> Any:
    """Returns a ControlNet pipeline with the base's weights and its own scheduler, which has state for each run."""
    import diffusers

    kind = type(controlnet).__name__.removesuffix("Model")  # ControlNet or ControlNetUnion
    pipeline_class = getattr(diffusers, type(base).__name__.replace("Pipeline", f"{kind}Pipeline"))
    scheduler = type(base.scheduler).from_config(base.scheduler.config)
    pipeline = pipeline_class(**{**base.components, "scheduler": scheduler}, controlnet=controlnet)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
