"""Image to text: captions, or the text in an image."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Outputs
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generated_text import decode_text
from experts.torch_host.generation import generate_tokens
from experts.torch_host.weight_checks import POOLER
from experts.vision.image_batches import ImageHandler, ImageItem, run_in_groups, stack_tensors
from experts.vision.prompted import PromptedDescriber, prompted

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLASSES: "Mapping[str, str]" = {
    "blip": "BlipForConditionalGeneration",
    "blip-2": "Blip2ForConditionalGeneration",
    "git": "GitForCausalLM",
    "pix2struct": "Pix2StructForConditionalGeneration",
    "vision-encoder-decoder": "VisionEncoderDecoderModel",
}
"""Classes of models that generate text from an image alone, by model type."""
_DEFAULT_TOKENS = 64
_UNSET_LENGTH = 20
"""max_length of transformers' default configuration; such a value is not a recommendation."""


def image_to_text(model_id: str, device: str) -> Handler:
    """Loads a model of captions (BLIP, GIT, ViT with a decoder), of text in images (TrOCR, Pix2Struct), or for prompts.

    Raises:
        FailedPrecondition: LOAD_FAILED.
    """
    import transformers
    from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    kind = checkpoint.processor(AutoConfig).model_type
    if kind not in _CLASSES:
        return prompted(PromptedDescriber, checkpoint)
    model = checkpoint.model(getattr(transformers, _CLASSES[kind]), unused=[POOLER])
    processor = checkpoint.processor(AutoImageProcessor)
    return Captioner(checkpoint, model, processor, checkpoint.processor(AutoTokenizer))


class Captioner(ImageHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model, processor)
        self._tokenizer = tokenizer
        recommended = model.generation_config.max_length or 0
        self._default_tokens = recommended if recommended > _UNSET_LENGTH else _DEFAULT_TOKENS

    def run(self, items: Sequence[ImageItem], call: Call) -> list[list[int]]:
        def compute(group: Sequence[ImageItem]) -> list[list[int]]:
            max_new_tokens = group[0].parameters.get("max_new_tokens") or self._default_tokens
            batch = stack_tensors([item.tensors for item in group])
            return generate_tokens(self.model, batch, call, max_new_tokens=max_new_tokens, model_id=self.model_id)

        return run_in_groups(items, lambda item: item.shape, compute, call)

    def finish(self, raw: list[int]) -> Outputs:
        return {"text": decode_text(self._tokenizer, raw)}
