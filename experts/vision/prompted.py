"""Image tasks of models that follow prompts: descriptions, texts of pages, and questions about images and documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from experts.host.handler import Call, Inputs, Outputs, Parameters
from experts.host.media import pages
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.generated_text import GeneratedText
from experts.torch_host.vision_language import (
    MAX_QUESTION_TOKENS,
    PromptItem,
    VisionLanguageHandler,
    load_vision_language_model,
)
from experts.vision.doctags import read_doctags, writes_doctags
from experts.vision.document_pages import check_pages, choose_answer
from experts.vision.image_batches import InputImage, fit_size
from experts.vision.question_limits import check_characters, check_tokens
from services.common.errors import FailedPrecondition

_MAX_PIXELS = 1_000_000
"""Larger images are scaled down: their tokens, a thousand per million pixels of Qwen3-VL, precede each answer."""
_MAX_PAGE_PIXELS = 2_000_000
_DESCRIPTION_TOKENS, _ANSWER_TOKENS, _PAGE_TOKENS = 96, 64, 4096
_DESCRIBE = "Describe in one sentence what the image shows."
_FLORENCE_DESCRIBE = "<DETAILED_CAPTION>"
_CONVERT = "Convert this page to docling."
_ANSWER = "{}\nAnswer with a word or a short phrase."
_UNANSWERED = "none"
_ANSWER_FROM_PAGE = (
    "{}\nAnswer with the exact words or numbers of the page, and nothing else. "
    f"If the page does not state the answer, reply: {_UNANSWERED}"
)


class PromptedDescriber(VisionLanguageHandler):
    """Describes images."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> PromptItem:
        image = InputImage.decode(inputs["image"])
        prompt = _FLORENCE_DESCRIBE if self.is_florence else _DESCRIBE
        return self.encode(prompt, [_shrink(image.load(), _MAX_PIXELS)], parameters)

    def run(self, items: Sequence[PromptItem], call: Call) -> list[GeneratedText]:
        limit = items[0].parameters.get("max_new_tokens") or _DESCRIPTION_TOKENS
        return self.generate(items, call, max_new_tokens=limit)

    def finish(self, raw: GeneratedText) -> Outputs:
        return {"text": self.decode(raw)}


class PageReader(VisionLanguageHandler):
    """Reads the text of a page with a model that writes DocTags."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> PromptItem:
        image = InputImage.decode(inputs["image"])
        return self.encode(_CONVERT, [_shrink(image.load(), _MAX_PAGE_PIXELS)], parameters)

    def run(self, items: Sequence[PromptItem], call: Call) -> list[GeneratedText]:
        positions = self.model.config.text_config.max_position_embeddings - max(item.length for item in items)
        limit = items[0].parameters.get("max_new_tokens") or _PAGE_TOKENS
        return self.generate(items, call, max_new_tokens=min(limit, positions))

    def finish(self, raw: GeneratedText) -> Outputs:
        markup = str(self.tokenizer.decode(raw.tokens))  # its tags are special tokens
        return {"text": read_doctags(markup), "details": {"doctags": markup}}


class PromptedAnswerer(VisionLanguageHandler):
    """Answers questions about images."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> PromptItem:
        question = check_question(self, inputs["question"])
        image = InputImage.decode(inputs["image"])
        return self.encode(_ANSWER.format(question), [_shrink(image.load(), _MAX_PIXELS)], parameters)

    def run(self, items: Sequence[PromptItem], call: Call) -> list[GeneratedText]:
        return self.generate(items, call, max_new_tokens=_ANSWER_TOKENS)

    def finish(self, raw: GeneratedText) -> Outputs:
        answer = self.decode(raw)
        return {"text": answer, "answers": [{"answer": answer, "score": round(raw.score, DIGITS)}]}


@dataclass(frozen=True)
class PagesItem:
    """The question with each page of a document."""

    prompts: Sequence[PromptItem]

    @property
    def length(self) -> int:
        return sum(prompt.length for prompt in self.prompts)


class PromptedDocumentAnswerer(VisionLanguageHandler):
    """Answers questions about documents, page by page; the most probable answer wins."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> PagesItem:
        prompt = _ANSWER_FROM_PAGE.format(check_question(self, inputs["question"]))
        document = pages(inputs["image"])
        check_pages(len(document), inputs["image"], self.model_id)
        return PagesItem(
            [self.encode(prompt, [_shrink(page.picture(), _MAX_PAGE_PIXELS)], parameters) for page in document]
        )

    def run(self, items: Sequence[PagesItem], call: Call) -> list[list[GeneratedText]]:
        prompts = list(chain.from_iterable(item.prompts for item in items))
        texts = iter(self.generate(prompts, call, max_new_tokens=_ANSWER_TOKENS))
        return [] if call.cancelled else [[next(texts) for _ in item.prompts] for item in items]

    def finish(self, raw: list[GeneratedText]) -> Outputs:
        answers = [(self.decode(text), text.score, page) for page, text in enumerate(raw, 1)]
        return choose_answer([each for each in answers if each[0].strip(". ").casefold() != _UNANSWERED])


def prompted(kind: type[VisionLanguageHandler], checkpoint: Checkpoint) -> VisionLanguageHandler:
    """Loads a model that follows prompts, for one of the tasks.

    Raises:
        FailedPrecondition: LOAD_FAILED; also if a model that has only prompts of its own is loaded for questions.
    """
    model, processor = load_vision_language_model(checkpoint)
    reads_pages = writes_doctags(processor)
    if kind is PromptedDescriber:
        return (PageReader if reads_pages else kind)(checkpoint, model, processor)
    handler = kind(checkpoint, model, processor)
    if handler.is_florence or reads_pages:
        ability = "converts pages" if reads_pages else "describes images"
        raise FailedPrecondition(
            f"{checkpoint.model_id} {ability}, and does not answer questions",
            reason="LOAD_FAILED",
            remedy="use it for image-to-text, or another model for questions",
        )
    return handler


def check_question(handler: VisionLanguageHandler, question: str) -> str:
    """Returns the question.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    check_characters(question, MAX_QUESTION_TOKENS, handler.model_id)
    count = len(handler.tokenizer(question, add_special_tokens=False)["input_ids"])
    check_tokens(count, MAX_QUESTION_TOKENS, handler.model_id)
    return question


def _shrink(image: Any, max_pixels: int) -> Any:
    size = fit_size(image.size, max_pixels)
    return image if size == image.size else image.resize(size)
