"""Video classification and video captioning."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import is_multi_label, label_names, to_probabilities, top_labels
from experts.torch_host.devices import inference_context
from experts.torch_host.generated_text import GeneratedText
from experts.torch_host.generation import generate_tokens, move_to_device
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host
from experts.torch_host.vision_language import PromptItem, VisionLanguageHandler, load_vision_language_model
from experts.video.frames import sample_frames
from services.common.errors import FailedPrecondition

_DEFAULT_FRAMES = 16
_DEFAULT_TOKENS = 50
_PROMPT_FRAMES, _PROMPT_PIXELS = 8, 384
"""Frames for a model that follows prompts, and the maximum side of each."""
_DESCRIBE = "These are pictures of one video, in order. Describe in one sentence what the video shows."
_VIDEO_DIMENSIONS = 5
"""Batch, frames, channels, height and width."""
_V_JEPA, _VIDEO_PROCESSOR = "vjepa2", "video_preprocessor_config.json"


def video_classification(model_id: str, device: str) -> Handler:
    """Loads a VideoMAE, TimeSformer or V-JEPA 2."""
    from transformers import (
        AutoConfig,
        AutoImageProcessor,
        AutoModelForVideoClassification,
        VideoMAEImageProcessorPil,
    )

    checkpoint = Checkpoint.fetch(model_id, device)
    if checkpoint.processor(AutoConfig).model_type == _V_JEPA:
        # its own processor needs torchvision; this one does the same: shorter edge, centre, normalization
        processor = checkpoint.processor(VideoMAEImageProcessorPil, image_processor_filename=_VIDEO_PROCESSOR)
    else:
        processor = checkpoint.processor(AutoImageProcessor)
    return VideoClassifier(checkpoint, checkpoint.model(AutoModelForVideoClassification), processor)


def video_to_text(model_id: str, device: str) -> Handler:
    """Loads a GIT trained with frames of videos, or a model that follows prompts about images.

    Raises:
        FailedPrecondition: LOAD_FAILED; also if the model supports only single pictures.
    """
    from transformers import AutoConfig, AutoProcessor, GitForCausalLM

    checkpoint = Checkpoint.fetch(model_id, device)
    if checkpoint.processor(AutoConfig).model_type != "git":
        handler = PromptedVideoDescriber(checkpoint, *load_vision_language_model(checkpoint))
        if handler.is_florence:
            raise _single_pictures_error(model_id)
        return handler
    model = checkpoint.model(GitForCausalLM)
    if not model.config.num_image_with_embedding:
        raise _single_pictures_error(model_id)
    return VideoCaptioner(checkpoint, model, checkpoint.processor(AutoProcessor))


def _single_pictures_error(model_id: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"{model_id} describes single pictures, not videos",
        reason="LOAD_FAILED",
        remedy="choose one for several pictures, such as Qwen/Qwen3-VL-2B-Instruct or microsoft/git-base-vatex",
    )


@dataclass(frozen=True)
class Clip:
    """Preprocessed frames of one call, with its parameters."""

    pixels: Any
    parameters: Parameters


class VideoClassifier(TorchHandler):
    """Classifies videos."""

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        is_v_jepa = model.config.model_type == _V_JEPA
        self._processor, self._input = processor, "pixel_values_videos" if is_v_jepa else "pixel_values"
        self._frames = int(getattr(model.config, "frames_per_clip" if is_v_jepa else "num_frames", _DEFAULT_FRAMES))
        self._labels, self._several = label_names(model.config), is_multi_label(model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Clip:
        frames = sample_frames(inputs["video"], self._frames)
        return Clip(self._processor([frames], return_tensors="pt")["pixel_values"], parameters)

    def cost(self, item: Clip) -> float:
        return float(item.pixels.shape[1])

    def compute(self, items: Sequence[Clip], call: Call) -> ReadResults:  # noqa: ARG002  # one pass
        import torch

        batch = {self._input: torch.cat([item.pixels for item in items])}
        with inference_context(self.model_id):
            logits = copy_to_host(self.model(**move_to_device(batch, self.model)).logits)

        def read() -> list[tuple[list[float], int]]:
            rows = to_probabilities(logits, multi_label=self._several)
            return [(row, item.parameters["top_k"]) for row, item in zip(rows, items, strict=True)]

        return read

    def finish(self, raw: tuple[list[float], int]) -> Outputs:
        scores, top_k = raw
        labels = top_labels(scores, self._labels, top_k)
        return {"labels": labels, "text": labels[0]["label"]}


class VideoCaptioner(TorchHandler):
    """Describes videos in a sentence."""

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._image_processor = processor.tokenizer, processor.image_processor
        self._frames = int(model.config.num_image_with_embedding)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Clip:
        frames = sample_frames(inputs["video"], self._frames)
        pixels = self._image_processor(frames, return_tensors="pt")["pixel_values"]
        is_video_processor = pixels.ndim == _VIDEO_DIMENSIONS  # such as VideoMAE's; others process single pictures
        return Clip(pixels if is_video_processor else pixels.unsqueeze(0), parameters)

    def cost(self, item: Clip) -> float:
        return float(item.pixels.shape[1])

    def run(self, items: Sequence[Clip], call: Call) -> list[list[int]]:
        import torch

        max_tokens = self.model.config.max_position_embeddings - 1
        requested = items[0].parameters.get("max_new_tokens") or _DEFAULT_TOKENS  # all items have the same parameters
        start = torch.full((len(items), 1), self._tokenizer.cls_token_id)
        batch = {
            "pixel_values": torch.cat([item.pixels for item in items]),
            "input_ids": start,
            "attention_mask": torch.ones_like(start),
        }
        return generate_tokens(
            self.model, batch, call, max_new_tokens=min(requested, max_tokens), model_id=self.model_id
        )

    def finish(self, raw: list[int]) -> Outputs:
        return {"text": self._tokenizer.decode(raw, skip_special_tokens=True).strip()}


class PromptedVideoDescriber(VisionLanguageHandler):
    """Describes videos by their frames, with a model that follows prompts."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> PromptItem:
        frames = sample_frames(inputs["video"], _PROMPT_FRAMES)
        for frame in frames:
            frame.thumbnail((_PROMPT_PIXELS, _PROMPT_PIXELS))
        return self.encode(_DESCRIBE, frames, parameters, are_frames=True)

    def run(self, items: Sequence[PromptItem], call: Call) -> list[GeneratedText]:
        limit = items[0].parameters.get("max_new_tokens") or _DEFAULT_TOKENS
        return self.generate(items, call, max_new_tokens=limit)

    def finish(self, raw: GeneratedText) -> Outputs:
        return {"text": self.decode(raw)}
