"""Question answering about page images and PDFs: recognizes the text (ocr), then finds the answer (form_fields)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.media import Page, pages
from experts.lite.form_fields import find_field_answer
from experts.lite.ocr import PageText, TextRecognizer, read_pages, render_line, text_recognizer
from experts.lite.text_processing import require_text

NO_ANSWER = "The document does not say."


@dataclass(frozen=True)
class DocumentQuestion:
    """A document and a question."""

    question: str
    file: str
    """The document's name."""
    pages: Sequence[Page]


class DocumentQuestionAnswering(Handler):
    """The task document-question-answering: returns the best answer of all pages, with its page."""

    batching = UNBATCHED
    concurrent = True

    def __init__(self, engine: TextRecognizer) -> None:
        self._engine = engine

    def prepare(self, inputs: Inputs, _parameters: Parameters) -> DocumentQuestion:
        return DocumentQuestion(
            require_text(inputs["question"], "question"), inputs["image"].name, pages(inputs["image"])
        )

    def cost(self, item: DocumentQuestion) -> float:
        return len(item.pages)

    def run(self, items: Sequence[DocumentQuestion], call: Call) -> list[tuple[str, list[PageText]]]:
        return [(item.question, read_pages(self._engine, item.pages, call, item.file)) for item in items]

    def finish(self, raw: tuple[str, list[PageText]]) -> Outputs:
        question, texts = raw
        answers = [
            (answer, text.page.number)
            for text in texts
            if (answer := find_field_answer(question, text.text, text.lines)) is not None
        ]
        if not answers:
            return {"text": NO_ANSWER, "details": {"answer": "", "score": 0.0, "page": 0}}
        best, page = max(answers, key=lambda pair: pair[0].score)
        details: dict[str, Any] = {"answer": best.answer, "score": round(best.score, 4), "page": page}
        if best.line:
            details["line"] = render_line(best.line)
        return {"text": best.answer, "details": details}


def document_question_answering(_model_id: str, _device: str) -> Handler:
    """Loads and warms up the OCR engine."""
    return DocumentQuestionAnswering(text_recognizer.get())
