"""Readers of the LLM's replies: what is not in the text, or not one of the given labels, is no result."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experts.endpoints import prompts, results
from experts.host.handler import Inputs, Outputs, Parameters
from experts.host.input_validation import read_candidate_labels
from experts.llm.documents import Document
from experts.llm.quotation import find_quotation
from services.common.errors import CorruptData

_STRING = {"type": "string"}
_KINDS = ("PER", "ORG", "LOC", "DATE", "TIME", "MONEY", "PERCENT", "EMAIL", "URL", "PHONE", "ADDRESS", "MISC")
_KIND_SYNONYMS = {"PERSON": "PER", "ORGANISATION": "ORG", "ORGANIZATION": "ORG", "LOCATION": "LOC", "PLACE": "LOC"}


def _object_schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


EVIDENCE = _object_schema(evidence=_STRING, answer=_STRING)
"""Schema of an answer; the evidence comes first, so that the answer follows from it."""
ENTITIES = _object_schema(
    entities={
        "type": "array",
        "items": _object_schema(text=_STRING, entity={"type": "string", "enum": list(_KINDS)}),
    }
)
"""Schema of the entities of a text."""

_SCORE = 1.0
_UNVERIFIED_SCORE = 0.5
"""Score of an answer whose evidence is in a picture that OCR cannot read."""

_CHECKED_FOR_REFUSAL = frozenset({"summarization", "translation", "image-to-text", "visual-question-answering"})
"""Tasks whose result never begins like a refusal, unless the text itself does."""
_PREAMBLE = re.compile(
    r"\A(?:sure|certainly|of course|absolutely|okay|ok|here(?:'s|’s| is| are))\b[^\n]{0,100}:\s*\n+", re.IGNORECASE
)
_CLOSING = re.compile(r"\n\s*\n(?:let me know|feel free|i hope (?:this|that)|would you like)[^\n]*\Z", re.IGNORECASE)
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_REFUSAL = re.compile(
    r"\A(?:(?:i['’]m|i am|we['’]re|we are) )?"
    r"(?:(?:very |so )?sorry[,.]? (?:but )?|unfortunately[, ]+|as an ai\b.{0,60}?)?"
    r"i (?:can['’]?t|cannot|can not|won['’]?t|will not|am unable to|am not able to)\b",
    re.IGNORECASE,
)
_QUESTION_CHARACTERS = 200
"""Longest question that a declined result repeats in full."""
_WORD = re.compile(r"[^\W_]{2,}")


class MissingEvidence(CorruptData):
    """The words that an answer quotes are not in the text."""


def words(text: str) -> list[str]:
    """Returns the words of a text in lower case."""
    return [word.lower() for word in _WORD.findall(text)]


def read(task: str, reply: str, inputs: Inputs, parameters: Parameters) -> Outputs:
    """Reads the reply of any task but questions about a text or document.

    Raises:
        CorruptData: it is empty, a refusal, in another format, or names what was not given.
    """
    text, reply = str(inputs.get("text", "")), prompts.strip_reasoning(reply)
    match task:
        case "token-classification":
            return results.build_entities(list(_locate(prompts.parse_object(reply).get("entities"), text)), text)
        case "zero-shot-classification":
            _check_labels(prompts.parse_object(reply), read_candidate_labels(parameters))
        case "summarization" | "translation" | "text2text-generation":
            reply = _strip_remarks(reply, text, may_close=task == "summarization")
    if task in _CHECKED_FOR_REFUSAL and _REFUSAL.match(reply) and not _REFUSAL.match(text.strip()):
        raise CorruptData("the LLM refused", remedy="use another model, or change the text")
    return prompts.parse_reply(task, reply, inputs, parameters)


def read_answer(reply: str, question: str, context: str) -> Outputs:
    """Reads the answer to a question about a text.

    Raises:
        CorruptData: it has another format.
        MissingEvidence: its evidence is not in the text.
    """
    answer, evidence = _read_evidence(reply)
    if not answer:
        return decline_question(question)
    span = find_quotation(evidence, context)
    if span is None:
        raise MissingEvidence("the LLM quoted evidence that is not in the text", remedy="ask more precisely")
    start, end = span
    if inside := find_quotation(answer, context[start:end]):
        start, end = start + inside[0], start + inside[1]
    details = {"answer": answer, "score": _SCORE, "start": start, "end": end, "evidence": context[slice(*span)]}
    return {"text": answer, "details": details}


def decline_question(question: str) -> Outputs:
    """Returns the result of a question that the text does not answer."""
    details = {"answer": "", "score": 0.0, "start": 0, "end": 0}
    return {"text": f"I found no answer to “{_shorten(question)}”.", "details": details}


def read_document_answer(reply: str, question: str, document: Document) -> Outputs:
    """Reads the answer to a question about a document.

    Raises:
        CorruptData: it has another format.
        MissingEvidence: its evidence is not in the document.
    """
    answer, evidence = _read_evidence(reply)
    if not answer:
        return decline_document_question(question, document.file)
    for page in document.pages:
        if span := find_quotation(evidence, page.text):
            details = {"answer": answer, "score": _SCORE, "page": page.number, "evidence": page.text[slice(*span)]}
            return {"text": answer, "details": details}
    if document.pictures and not any(page.text for page in document.pages):
        return {"text": answer, "details": {"answer": answer, "score": _UNVERIFIED_SCORE, "page": 1}}
    raise MissingEvidence(f"the LLM quoted evidence that is not in {document.file}", remedy="ask more precisely")


def decline_document_question(question: str, file: str) -> Outputs:
    """Returns the result of a question that the document does not answer."""
    text = f"I found no answer to “{_shorten(question)}” in {file}."
    return {"text": text, "details": {"answer": "", "score": 0.0, "page": 0}}


def _read_evidence(reply: str) -> tuple[str, str]:
    """Returns the answer and its evidence."""
    value = prompts.parse_object(reply)
    answer, evidence = value.get("answer"), value.get("evidence")
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = str(answer)
    if not isinstance(answer, str) or not isinstance(evidence, str):
        raise _wrong_format()
    return " ".join(answer.split()), evidence


def _check_labels(scores: Mapping[str, Any], labels: Sequence[str]) -> None:
    if scores.keys() - set(labels):
        raise CorruptData("the LLM used labels that were not given", remedy="use another model")


def _locate(entities: Any, text: str) -> Iterator[Mapping[str, Any]]:
    """Yields the entities with their spans, each at its next occurrence; further mentions than there are drop out."""
    if not isinstance(entities, list):
        raise _wrong_format()
    next_start: dict[str, int] = {}
    for entity in entities:
        written, kind = _read_entity(entity)
        if written not in text:
            raise CorruptData("the LLM named words that are not in the text", remedy="use another model")
        start = text.find(written, next_start.get(written, 0))
        if start >= 0:
            next_start[written] = end = start + len(written)
            yield {"entity": kind, "score": _SCORE, "start": start, "end": end}


def _read_entity(entity: Any) -> tuple[str, str]:
    if not isinstance(entity, dict):
        raise _wrong_format()
    written, kind = str(entity.get("text", "")).strip(), str(entity.get("entity", "")).upper()
    kind = _KIND_SYNONYMS.get(kind, kind)
    if not written or kind not in _KINDS:
        raise _wrong_format()
    return written, kind


def _strip_remarks(reply: str, text: str, *, may_close: bool) -> str:
    """Returns the reply without a code fence around it and without remarks, unless the text begins in the same way.

    Args:
        reply: of the LLM.
        text: the text that it summarizes, translates or changes.
        may_close: whether a remark at its end is the LLM's own, not the text's.
    """
    if not text.strip().partition("\n")[0].rstrip().endswith((":", "：")):
        reply = _PREAMBLE.sub("", reply)
    reply = (_CLOSING.sub("", reply) if may_close else reply).strip()
    fenced = None if text.strip().startswith("```") else _FENCE.match(reply)
    return fenced[1] if fenced else reply


def _shorten(question: str) -> str:
    text = " ".join(question.split())
    return text if len(text) <= _QUESTION_CHARACTERS else f"{text[: _QUESTION_CHARACTERS - 1]}…"


def _wrong_format() -> CorruptData:
    return CorruptData("the LLM's reply does not have the requested format", remedy="use another model")
