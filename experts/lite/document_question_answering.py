"""Question answering about page images and PDFs: text by OCR (ocr), then answers (form_fields)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.media import Page, pages
from experts.lite.form_fields import answer
from experts.lite.ocr import Reader, Text, described, read, reader
from experts.lite.sentences import required

NO_ANSWER = "The document does not say."


@dataclass(frozen=True)
class Asked:
    """A document and a question."""

    question: str
    file: str
    """The document's name."""
    pages: Sequence[Page]


class DocumentQuestionAnswering:
    """The task document-question-answering: returns the best answer of all pages, with its page."""

    batching = UNBATCHED
    concurrent = True

    def __init__(self, engine: Reader) -> None:
        self._engine = engine

    def prepare(self, inputs: Inputs, _parameters: Parameters) -> Asked:
        return Asked(required(inputs["question"], "question"), inputs["image"].name, pages(inputs["image"]))

    def cost(self, item: Asked) -> float:
        return len(item.pages)

    def run(self, items: Sequence[Asked], call: Call) -> list[tuple[str, list[Text]]]:
        return [(item.question, read(self._engine, item.pages, call, item.file)) for item in items]

    def finish(self, raw: tuple[str, list[Text]]) -> Outputs:
        question, texts = raw
        found = [
            (reading, text.page.number)
            for text in texts
            if (reading := answer(question, text.text, text.lines)) is not None
        ]
        if not found:
            return {"text": NO_ANSWER, "details": {"answer": "", "score": 0.0, "page": 0}}
        best, page = max(found, key=lambda pair: pair[0].score)
        details: dict[str, Any] = {"answer": best.answer, "score": round(best.score, 4), "page": page}
        if best.line:
            details["line"] = described(best.line)
        return {"text": best.answer, "details": details}


def document_question_answering(_model_id: str, _device: str) -> Handler:
    """Loads and warms up the OCR engine."""
    return DocumentQuestionAnswering(reader.get())
