"""Questions about documents, answered from the look of each page (Donut)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.media import pages
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.torch_handler import TorchHandler
from experts.vision.question_input import check_count, short
from experts.vision.text_generation import Written, written
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    import torch

MOST_PAGES = 20
NO_ANSWER = "The document does not say."
_PROMPT = "<s_docvqa><s_question>{}</s_question><s_answer>"
_LONGEST_ANSWER = 128
_LONGEST_PROMPT = 512
_TAG = re.compile(r"<[^<>]*>")


def document_question_answering(model_id: str, device: str) -> Handler:
    """Donut, trained for questions."""
    from transformers import AutoImageProcessor, AutoTokenizer, VisionEncoderDecoderModel

    checkpoint = Checkpoint.fetch(model_id, device)
    model = checkpoint.model(VisionEncoderDecoderModel)
    return Reader(checkpoint, model, checkpoint.processor(AutoImageProcessor), checkpoint.processor(AutoTokenizer))


@dataclass(frozen=True)
class Asked:
    """A document, page by page, and what is asked about it."""

    pages: Sequence[Mapping[str, "torch.Tensor"]]
    prompt: "torch.Tensor"


class Reader(TorchHandler):
    """Pages have more pixels than a batch gains by: one document at a time, page after page."""

    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._processor, self._tokenizer = processor, tokenizer

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Asked:  # noqa: ARG002  # it has none
        prompt = self._prompt(inputs["question"])
        document = pages(inputs["image"])
        if len(document) > MOST_PAGES:
            raise InvalidRequest(
                f"{inputs['image'].name} has {len(document)} pages; {self.model_id} looks at {MOST_PAGES} at most.",
                remedy="Send the pages you mean on their own.",
                port="image",
            )
        seen = [dict(self._processor(images=page.picture(), return_tensors="pt")) for page in document]
        return Asked(seen, prompt)

    def _prompt(self, question: str) -> "torch.Tensor":
        said = _PROMPT.format(_TAG.sub(" ", short(question, _LONGEST_PROMPT, self.model_id)).strip())
        prompt: torch.Tensor = self._tokenizer(said, add_special_tokens=False, return_tensors="pt").input_ids
        check_count(prompt.shape[1], _LONGEST_PROMPT, self.model_id)
        return prompt

    def cost(self, item: Asked) -> float:
        return len(item.pages)

    def run(self, items: Sequence[Asked], call: Call) -> list[list[Written]]:
        return [list(self._answers(item, call)) for item in items]

    def _answers(self, item: Asked, call: Call) -> Iterator[Written]:
        longest = min(_LONGEST_ANSWER, self.model.config.decoder.max_position_embeddings - item.prompt.shape[1])
        for number, page in enumerate(item.pages, 1):
            if call.cancelled:
                return
            inputs = {**page, "decoder_input_ids": item.prompt}
            yield from islice(written(self.model, inputs, call, max_new_tokens=longest, model_id=self.model_id), 1)
            call.progress(number / len(item.pages), f"page {number}")

    def finish(self, raw: list[Written]) -> Outputs:
        answers = [(self._text(one.tokens), one.score, page) for page, one in enumerate(raw, 1)]
        said = [one for one in answers if one[0]]
        if not said:
            return {"text": NO_ANSWER, "details": {"answer": "", "score": 0.0, "page": 0}}
        answer, score, page = max(said, key=lambda one: one[1])
        return {"text": answer, "details": {"answer": answer, "score": round(score, DIGITS), "page": page}}

    def _text(self, tokens: Sequence[int]) -> str:
        text = str(self._tokenizer.decode(tokens))
        return " ".join(_TAG.sub(" ", text.partition("</s_answer>")[0]).split())
