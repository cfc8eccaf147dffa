"""Text to video and image to video, by the diffusers pipeline that the model's index names."""

import inspect
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from experts.host import load_context
from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.host.input_validation import parameter_port
from experts.host.media import derive_name, open_image
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.file_selection import PIPELINE_INDEX
from experts.torch_host.pipelines import PipelineHandler, PipelineItem, fetch_pipeline, load_pipeline
from experts.video.frames import encode_video
from services.common.errors import FailedPrecondition, InvalidRequest, ModelFailed

_DEFAULT_RATE = 8.0
_RATES: Mapping[str, float] = {
    "Wan": 16.0,
    "LTX": 24.0,
    "Hunyuan": 24.0,
    "StableVideoDiffusion": 7.0,
    "Cog": 8.0,
    "I2VGenXL": 16.0,
}
"""Frames per second by the start of the pipeline's name; most models were trained with 8."""
_SEED_LIMIT = 2**53
_MAX_PROMPT_CHARACTERS = 5_000
_SVD, _WAN = "StableVideoDiffusion", "Wan"
"""Pipelines that distort an image to the requested size; the VAE of Wan runs in float32, as its model card advises."""
_SIZE_MULTIPLE = 64
"""Sides of a generated video are multiples of this."""
_OPTIONS = ("num_frames", "num_inference_steps", "guidance_scale")


def text_to_video(model_id: str, device: str) -> Handler:
    """Loads any pipeline that generates frames from a prompt."""
    return VideoGenerator(*_load(model_id, device, "prompt"))


def image_to_video(model_id: str, device: str) -> Handler:
    """Loads any pipeline that generates frames from a picture; many accept a prompt, too."""
    return VideoGenerator(*_load(model_id, device, "image"))


class VideoGenerator(PipelineHandler):
    """Generates videos with a diffusers pipeline."""

    def __init__(self, checkpoint: Checkpoint, pipeline: Any) -> None:
        super().__init__(checkpoint, pipeline)
        kind = type(pipeline).__name__
        rate = next((rate for name, rate in _RATES.items() if kind.startswith(name)), _DEFAULT_RATE)
        self._rate = load_context.current().pipeline.frames_per_second or rate
        self.set_batch_limits(default_cost=self.cost(PipelineItem({}, 0, "")))

    def prepare(self, inputs: Inputs, parameters: Parameters) -> PipelineItem:
        options = {name: parameters[name] for name in _OPTIONS if parameters.get(name) is not None}
        unknown = options.keys() - self._pipeline_parameters.keys()
        if unknown:
            raise InvalidRequest(
                f"{self.model_id} has no parameter {min(unknown)}", port=parameter_port(min(unknown)), remedy="omit it"
            )
        options = {**self.card_arguments, **options}
        name = "video"
        if "image" in inputs:
            image = open_image(inputs["image"])
            if options.get("num_frames", 2) < 2:  # noqa: PLR2004
                raise InvalidRequest(
                    "a video of one frame does not move",
                    port=parameter_port("num_frames"),
                    remedy="set num_frames to 2 or more",
                )
            image = image.resize(
                (max(image.width, _SIZE_MULTIPLE), max(image.height, _SIZE_MULTIPLE))
            )  # the pipeline's blur fails on a few pixels
            options |= {"image": image, **self._choose_size(image.width / image.height)}
            name = derive_name(inputs["image"], "video", "mp4").removesuffix(".mp4")
        if "prompt" in self._pipeline_parameters:
            options["prompt"] = self._prompt(inputs)
        seed = parameters.get("seed")
        return PipelineItem(options, secrets.randbelow(_SEED_LIMIT) if seed is None else int(seed), name)

    def cost(self, item: PipelineItem) -> float:
        """Returns the frames of the video times the number of steps; all videos of a model have about the same area."""
        frames = item.arguments.get("num_frames") or self._default_frames()
        return float(frames * (item.arguments.get("num_inference_steps") or self.default_value("num_inference_steps")))

    def run(self, items: Sequence[PipelineItem], call: Call) -> list[tuple[Any, str]]:
        """Returns the frames of each video, as an array of floats, with its name; an empty list if it is cancelled."""
        import numpy as np

        output = self.generate(items, call)
        if output is None:
            return []
        return [
            (np.asarray(frames, dtype=np.float32), item.name) for frames, item in zip(output.frames, items, strict=True)
        ]

    def finish(self, raw: tuple[Any, str]) -> Outputs:
        import numpy as np

        frames, name = raw
        if not np.isfinite(frames).all():
            raise ModelFailed("the model made pictures that are not finite", remedy="try another seed or another model")
        return {"video": encode_video((frames.clip(0, 1) * 255).round().astype(np.uint8), self._rate, name)}

    def _prompt(self, inputs: Inputs) -> str:
        text = str(inputs.get("text", "")).strip()
        if not text and "image" not in inputs:
            raise InvalidRequest("the text is empty", port="text", remedy="describe what the video should show")
        if len(text) > _MAX_PROMPT_CHARACTERS:
            raise InvalidRequest(
                f"the text has {len(text)} characters, the limit is {_MAX_PROMPT_CHARACTERS}",
                port="text",
                reason="TOO_LARGE",
                remedy="shorten the text: most models read only about the first 75 words",
            )
        return text

    def _choose_size(self, ratio: float) -> dict[str, int]:
        """Returns a size with the training area and the picture's aspect ratio; other pipelines crop the picture."""
        kind = type(self.model).__name__
        if kind.startswith(_WAN):
            area = self.default_value("height") * self.default_value("width")
            grid = self.model.vae_scale_factor_spatial * self.model.transformer.config.patch_size[1]
        elif kind.startswith(_SVD):
            default_side = self.model.unet.config.sample_size * self.model.vae_scale_factor
            area, grid = default_side**2, min(_SIZE_MULTIPLE, default_side // 4)
        else:
            return {}
        ratio = min(max(ratio, 0.5), 2.0)
        sides = {"height": math.sqrt(area / ratio), "width": math.sqrt(area * ratio)}
        return {name: max(grid, round(length / grid) * grid) for name, length in sides.items()}

    def _default_frames(self) -> int:
        return int(self.default_value("num_frames") or self.model.unet.config.num_frames)


def _load(model_id: str, device: str, required: str) -> tuple[Checkpoint, Any]:
    import torch
    from diffusers import DiffusionPipeline, WanImageToVideoPipeline

    checkpoint = fetch_pipeline(model_id, device)
    is_for_images = required == "image" and _accepts_text_and_images(checkpoint)
    pipeline = load_pipeline(checkpoint, WanImageToVideoPipeline if is_for_images else DiffusionPipeline)
    if type(pipeline).__name__.startswith(_WAN):
        pipeline.vae.to(torch.float32)
    if required not in inspect.signature(type(pipeline).__call__).parameters:
        raise FailedPrecondition(
            f"{model_id} is a {type(pipeline).__name__}, which has no input {required}",
            reason="LOAD_FAILED",
            remedy="choose a model for this task",
        )
    return checkpoint, pipeline


def _accepts_text_and_images(checkpoint: Checkpoint) -> bool:
    """Whether a repository has a Wan 2.2 that starts from a picture, too, although its index names one class only."""
    file = checkpoint.folder / PIPELINE_INDEX
    index = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return index.get("_class_name") == "WanPipeline" and bool(index.get("expand_timesteps"))
