"""Document question answering from page images, without OCR: by Donut, or by a model that follows prompts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.media import pages
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generated_text import GeneratedText, generate_text
from experts.torch_host.torch_handler import TorchHandler
from experts.torch_host.weight_checks import POOLER
from experts.vision.document_pages import check_pages, choose_answer
from experts.vision.prompted import PromptedDocumentAnswerer, prompted
from experts.vision.question_limits import check_characters, check_tokens

if TYPE_CHECKING:
    import torch

_PROMPT = "<s_docvqa><s_question>{}</s_question><s_answer>"
_MAX_ANSWER_TOKENS = 128
_MIN_ANSWER_TOKENS = 16
"""Positions of the decoder that a question must leave for the answer."""
_TAG = re.compile(r"<[^<>]*>")


def document_question_answering(model_id: str, device: str) -> Handler:
    """Loads Donut, trained for questions, or a model that follows prompts."""
    from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer, VisionEncoderDecoderModel

    checkpoint = Checkpoint.fetch(model_id, device)
    if checkpoint.processor(AutoConfig).model_type != "vision-encoder-decoder":
        return prompted(PromptedDocumentAnswerer, checkpoint)
    model = checkpoint.model(VisionEncoderDecoderModel, unused=[POOLER])
    return DocumentQuestionAnswerer(
        checkpoint, model, checkpoint.processor(AutoImageProcessor), checkpoint.processor(AutoTokenizer)
    )


@dataclass(frozen=True)
class DocumentItem:
    """Preprocessed pages of a document, with the question as a prompt of the decoder."""

    pages: Sequence[Mapping[str, "torch.Tensor"]]
    prompt: "torch.Tensor"


class DocumentQuestionAnswerer(TorchHandler):
    """Answers one document at a time, page after page: pages have too many pixels for batching to be faster."""

    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._processor, self._tokenizer = processor, tokenizer
        self._positions = int(model.config.decoder.max_position_embeddings)
        self._max_prompt_tokens = self._positions - _MIN_ANSWER_TOKENS

    def prepare(self, inputs: Inputs, parameters: Parameters) -> DocumentItem:  # noqa: ARG002  # the task has none
        prompt = self._prompt(inputs["question"])
        document = pages(inputs["image"])
        check_pages(len(document), inputs["image"], self.model_id)
        inputs_by_page = [dict(self._processor(images=page.picture(), return_tensors="pt")) for page in document]
        return DocumentItem(inputs_by_page, prompt)

    def _prompt(self, question: str) -> "torch.Tensor":
        text = _PROMPT.format(_TAG.sub(" ", check_characters(question, self._max_prompt_tokens, self.model_id)).strip())
        prompt: torch.Tensor = self._tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        check_tokens(prompt.shape[1], self._max_prompt_tokens, self.model_id)
        return prompt

    def cost(self, item: DocumentItem) -> float:
        return len(item.pages)

    def run(self, items: Sequence[DocumentItem], call: Call) -> list[list[GeneratedText]]:
        return [list(self._answers(item, call)) for item in items]

    def _answers(self, item: DocumentItem, call: Call) -> Iterator[GeneratedText]:
        max_new_tokens = min(_MAX_ANSWER_TOKENS, self._positions - item.prompt.shape[1])
        for number, page in enumerate(item.pages, 1):
            if call.cancelled:
                return
            inputs = {**page, "decoder_input_ids": item.prompt}
            yield from islice(
                generate_text(self.model, inputs, call, max_new_tokens=max_new_tokens, model_id=self.model_id), 1
            )
            call.progress(number / len(item.pages), f"page {number}")

    def finish(self, raw: list[GeneratedText]) -> Outputs:
        return choose_answer(
            [(self._text(generated.tokens), generated.score, page) for page, generated in enumerate(raw, 1)]
        )

    def _text(self, tokens: Sequence[int]) -> str:
        text = str(self._tokenizer.decode(tokens))
        return " ".join(_TAG.sub(" ", text.partition("</s_answer>")[0]).split())
