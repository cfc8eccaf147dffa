"""Models that generate text from a prompt and images, such as Qwen3-VL, SmolVLM, Granite-Docling, LLaVA and Florence-2.

Frames of videos are images of one prompt, so no model needs a video processor, and none torchvision for one.
"""

import inspect
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Batching, Call, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generated_text import GeneratedText, decode_text, generate_text
from experts.torch_host.padding import MAX_PASS_TOKENS, run_in_passes
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

FLORENCE = "florence2"
"""Model type with fixed prompts instead of a chat template."""
MAX_QUESTION_TOKENS = 1024
_VIDEO_PROCESSOR = "video_processor"
_TILES = "do_image_splitting"
"""Option of image processors that enlarge images and divide them into tiles, such as SmolVLM's."""


def load_vision_language_model(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """Loads a model with its processor.

    Raises:
        FailedPrecondition: LOAD_FAILED; also if it has no chat template, or is of another kind.
    """
    from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoConfig, AutoModelForImageTextToText

    config = checkpoint.processor(AutoConfig)
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        raise _load_error(checkpoint, f"is of type {config.model_type}, which generates no text from images")
    processor = checkpoint.processor(_images_only(config))
    if config.model_type != FLORENCE and not chat_template(processor):
        raise _load_error(checkpoint, "has no chat template, so it cannot be asked in words")
    return checkpoint.model(AutoModelForImageTextToText), processor


@dataclass(frozen=True)
class PromptItem:
    """Prompt and images of one call, preprocessed for the model."""

    tensors: "Mapping[str, torch.Tensor]"
    """Batches of one."""
    parameters: Parameters

    @property
    def length(self) -> int:
        """Tokens of the prompt, including those of its images."""
        return int(self.tensors["input_ids"].shape[1])

    @property
    def kind(self) -> Hashable:
        """Shapes of the images' tensors but for the first dimension: those of one batch are equal."""
        return tuple((name, value.shape[1:]) for name, value in self.tensors.items() if not self.is_sequence(name))

    def is_sequence(self, name: str) -> bool:
        """Whether a tensor has a value per token of the prompt."""
        return self.tensors[name].shape == self.tensors["input_ids"].shape


class VisionLanguageHandler(TorchHandler):
    """Base class of tasks that a prompt describes: batches of prompts of similar lengths, with their images."""

    batching = Batching(budget=MAX_PASS_TOKENS, padded=True)

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self.processor, self.tokenizer = processor, processor.tokenizer
        self.is_florence = model.config.model_type == FLORENCE

    def encode(
        self, prompt: str, images: "Sequence[Image]", parameters: Parameters, *, are_frames: bool = False
    ) -> PromptItem:
        """Preprocesses a prompt about images, which precede it.

        Args:
            prompt: instruction or question; special tokens of the model in it are removed.
            images: in RGB.
            parameters: of the call.
            are_frames: whether the images are frames of a video, which are not divided into tiles.
        """
        text = prompt if self.is_florence else self._chat_prompt(prompt, len(images))
        has_tiles = hasattr(self.processor.image_processor, _TILES)
        options = {_TILES: False} if are_frames and has_tiles else {}
        tensors = self.processor(text=[text], images=[list(images)], return_tensors="pt", **options)
        return PromptItem(dict(tensors), parameters)

    def cost(self, item: Any) -> float:
        return float(item.length)

    def generate(self, items: Sequence[PromptItem], call: Call, *, max_new_tokens: int) -> list[GeneratedText]:
        """Returns the text of each item, greedily; an empty list if the call is cancelled."""

        def compute(group: Sequence[PromptItem]) -> list[GeneratedText]:
            batch = collate(group, self.tokenizer.pad_token_id, left=not self.model.config.is_encoder_decoder)
            return generate_text(self.model, batch, call, max_new_tokens=max_new_tokens, model_id=self.model_id)

        rows = run_in_passes(
            [[item] for item in items],
            lambda item: item.length,
            compute,
            call,
            max_tokens=self.max_pass_tokens,
            kind=lambda item: item.kind,
        )
        return [text for (text,) in rows]

    def decode(self, generated: GeneratedText) -> str:
        return decode_text(self.tokenizer, generated.tokens)

    def _chat_prompt(self, prompt: str, count: int) -> str:
        for token in self.tokenizer.all_special_tokens:
            prompt = prompt.replace(token, " ")
        content = [*({"type": "image"} for _ in range(count)), {"type": "text", "text": prompt.strip()}]
        text: str = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            chat_template=chat_template(self.processor),
            add_generation_prompt=True,
            tokenize=False,
        )
        return text


def chat_template(processor: Any) -> str:
    """Returns the template of a processor, or else of its tokenizer; empty if there is none."""
    return processor.chat_template or processor.tokenizer.chat_template or ""


def collate(items: Sequence[PromptItem], pad_id: int, *, left: bool) -> "dict[str, torch.Tensor]":
    """Combines items of one kind to a batch: pads what has a value per token, and concatenates images."""
    import torch

    length = max(item.length for item in items)
    batch = {}
    for name in items[0].tensors:
        rows = [item.tensors[name] for item in items]
        if items[0].is_sequence(name):
            fill = pad_id if name == "input_ids" else 0
            paddings = [(length - row.shape[1], 0) if left else (0, length - row.shape[1]) for row in rows]
            rows = [
                torch.nn.functional.pad(row, padding, value=fill) for row, padding in zip(rows, paddings, strict=True)
            ]
        batch[name] = torch.cat(rows)
    return batch


def _images_only(config: Any) -> Any:
    """Returns the processor class of a model without its video processor, which would need torchvision."""
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    kind: Any = PROCESSOR_MAPPING[type(config)]
    if _VIDEO_PROCESSOR not in inspect.signature(kind.__init__).parameters:
        return kind

    class ImageProcessor(kind):  # type: ignore[misc]  # a class chosen at run time
        @classmethod
        def get_attributes(cls) -> list[str]:
            return [name for name in kind.get_attributes() if name != _VIDEO_PROCESSOR]

        @classmethod
        def from_args_and_dict(cls, args: Any, processor_dict: dict[str, Any], **options: Any) -> Any:
            return super().from_args_and_dict(args, {**processor_dict, _VIDEO_PROCESSOR: None}, **options)

    return ImageProcessor


def _load_error(checkpoint: Checkpoint, problem: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"{checkpoint.model_id} {problem}",
        reason="LOAD_FAILED",
        remedy="use a model for images and text, such as Qwen/Qwen3-VL-2B-Instruct",
    )
