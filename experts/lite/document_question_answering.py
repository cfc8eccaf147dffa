"""Question answering about page images and PDFs: recognizes the text (ocr), then finds the answer (form_fields)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.media import Page, pages
from experts.lite.form_fields import FieldAnswer, find_field_answer
from experts.lite.ocr import PageText, TextRecognizer, read_pages, render_line, text_recognizer
from experts.lite.question_answering import coverage_of, describe_no_answer
from experts.lite.question_types import AnswerKind, Question, compile_pattern
from experts.lite.text_processing import require_text

_PAGE_COVERAGE = 0.5
"""Share of a question's words that the page must have that it asks for."""

_SAYS = compile_pattern("says_asked")
"""Questions such as "What does the sign say?", which all of a short text answers."""
_SHORT_DOCUMENT_WORDS, _WHOLE_SCORE = 80, 0.9


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

    def run(self, items: Sequence[DocumentQuestion], call: Call) -> list[tuple[DocumentQuestion, list[PageText]]]:
        return [(item, read_pages(self._engine, item.pages, call, item.file)) for item in items]

    def finish(self, raw: tuple[DocumentQuestion, list[PageText]]) -> Outputs:
        item, texts = raw
        whole = "\n\n".join(text.text for text in texts if text.text)
        if _SAYS.search(item.question) and 0 < len(whole.split()) <= _SHORT_DOCUMENT_WORDS:
            return {"text": whole, "details": {"answer": whole, "score": _WHOLE_SCORE, "page": texts[0].page.number}}
        question = Question.parse(item.question)
        answers = _find_page(question, texts) if question.kind is AnswerKind.PAGE else _find_answers(question, texts)
        if not answers:
            details = {"answer": "", "score": 0.0, "page": 0}
            return {"text": describe_no_answer(item.question, item.file), "details": details}
        best, page = max(answers, key=lambda pair: pair[0].score)
        found: dict[str, Any] = {"answer": best.answer, "score": round(best.score, 4), "page": page}
        if best.line:
            found["line"] = render_line(best.line)
        return {"text": best.answer, "details": found}


def _find_answers(question: Question, texts: Sequence[PageText]) -> list[tuple[FieldAnswer, int]]:
    """Answers of all pages, with their pages."""
    found = ((find_field_answer(question, text.text, text.lines), text.page.number) for text in texts)
    return [(answer, page) for answer, page in found if answer is not None]


def _find_page(question: Question, texts: Sequence[PageText]) -> list[tuple[FieldAnswer, int]]:
    """The page with most of the question's words."""
    covered = [(coverage_of(question, text.text), text.page.number) for text in texts]
    return [(FieldAnswer(f"page {page}", share, None), page) for share, page in covered if share >= _PAGE_COVERAGE]


def document_question_answering(_model_id: str, _device: str) -> Handler:
    """Loads and warms up the OCR engine."""
    return DocumentQuestionAnswering(text_recognizer.get())
