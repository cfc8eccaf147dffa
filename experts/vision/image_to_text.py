"""Pictures in words: what they show, or the text in them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Outputs
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import generate_tokens
from experts.vision.image_batches import Seen, Viewer, alike, stacked
from experts.vision.text_generation import text_of
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLASSES: "Mapping[str, str]" = {
    "blip": "BlipForConditionalGeneration",
    "blip-2": "Blip2ForConditionalGeneration",
    "git": "GitForCausalLM",
    "pix2struct": "Pix2StructForConditionalGeneration",
    "vision-encoder-decoder": "VisionEncoderDecoderModel",
}
"""What writes about a picture without being asked anything."""
_USUAL = 64
_UNSET = 20
"""The length that a model has whose makers advise none."""


def image_to_text(model_id: str, device: str) -> Handler:
    """Captions (BLIP, GIT, ViT with a decoder) or text in a picture (TrOCR, Pix2Struct).

    Raises:
        FailedPrecondition: LOAD_FAILED, also where a model wants to be asked something.
    """
    import transformers
    from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    kind = checkpoint.processor(AutoConfig).model_type
    if kind not in _CLASSES:
        raise FailedPrecondition(
            f"{model_id} is a {kind}, which does not put pictures into words by itself",
            reason="LOAD_FAILED",
            remedy=f"take one of these kinds: {', '.join(_CLASSES)}",
        )
    model = checkpoint.model(getattr(transformers, _CLASSES[kind]))
    processor = checkpoint.processor(AutoImageProcessor)
    return Captioner(checkpoint, model, processor, checkpoint.processor(AutoTokenizer))


class Captioner(Viewer):
    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model, processor)
        self._tokenizer = tokenizer
        advised = model.generation_config.max_length or 0
        self._usual = advised if advised > _UNSET else _USUAL

    def run(self, items: Sequence[Seen], call: Call) -> list[list[int]]:
        def compute(group: Sequence[Seen]) -> list[list[int]]:
            longest = group[0].parameters.get("max_new_tokens") or self._usual
            batch = stacked([item.tensors for item in group])
            return generate_tokens(self.model, batch, call, max_new_tokens=longest, model_id=self.model_id)

        return alike(items, lambda item: item.shape, compute, call)

    def finish(self, raw: list[int]) -> Outputs:
        return {"text": text_of(self._tokenizer, raw)}
