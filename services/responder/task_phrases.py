"""What a task's result is in words: by the kind of task where it is known, else by its outputs."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from services.responder.escape import joined, named, percent, phrase, quoted
from services.responder.run_summary import Json, Task

CERTAIN_ENOUGH = 0.8
"""Confidence below which a transcript is called rough."""

UNSURE = 0.3
"""Score below which an answer is called unsure."""

MOST_LISTED = 12
"""Most findings of one kind that an answer lists."""

LONGEST_JSON = 600

_DESCRIBING = "The model that looked only reads: to have pictures described, add an expert that captions them."
_BETTER_TRANSCRIPT = "A Whisper-class model does far better: add an expert that serves one, and it is chosen by itself."
_LEAD = re.compile(
    r"^(?:(?:and|also|then|please|can you|could you|tell me|tell us|say|find out|check|determine|know|let me know"
    r"|i want(?: to know)?|detect|identify|classify)\s+)+",
    re.IGNORECASE,
)
_KINDS = {
    "per": "people",
    "person": "people",
    "org": "organisations",
    "loc": "places",
    "gpe": "places",
    "date": "dates",
    "time": "times",
    "money": "amounts of money",
    "address": "addresses",
    "email": "e-mail addresses",
    "phone": "phone numbers",
    "url": "URLs",
    "percent": "percentages",
    "misc": "other names",
}


def told(task: Task) -> str:
    """The result of a task that succeeded."""
    teller = _TELLERS.get(task.name)
    words = teller(task) if teller else ""
    return words or _anything(task)


def _reading(task: Task) -> str:
    if not task.text:
        return ""
    subject = _subject(task, "The picture")
    details = task.data("details")
    pages = details.get("pages") if isinstance(details, dict) else None
    if isinstance(pages, list) and pages and not any(isinstance(page, dict) and page.get("lines") for page in pages):
        return f"No text was found{_in(task)}. {_DESCRIBING}"
    if isinstance(pages, list) and len(pages) > 1:
        subject += f" ({len(pages)} pages)"
    return f"{subject} says:{_text(task)}"


def _transcript(task: Task) -> str:
    if not task.text:
        return ""
    details = task.data("details")
    details = details if isinstance(details, dict) else {}
    confidence = details.get("confidence")
    unsure = isinstance(confidence, int | float) and confidence < CERTAIN_ENOUGH
    if not unsure and details.get("quality") != "rough":
        return f"{_subject(task, 'The recording')} says:{_text(task)}"
    sure = f", {percent(confidence)} sure" if percent(confidence) else ""
    return f"Rough transcript{_of(task)}{sure}:{_text(task)}\n\nMany words of it may be wrong. {_BETTER_TRANSCRIPT}"


def _classes(task: Task) -> str:
    labels = [label for label in _records(task, "labels") if isinstance(label.get("label"), str)]
    if not labels:
        return ""
    best, others = labels[0], labels[1:3]
    sure = percent(best.get("score"))
    asked = f"{_asked(task.source)}: " if task.source else ""
    rest = [f"{phrase(other['label'])} {percent(other.get('score'))}".strip() for other in others]
    after = f"; then {joined(rest)}" if rest else ""
    return f"{asked}**{phrase(best['label'])}**{f' ({sure}{after})' if sure else ''}."


def _entities(task: Task) -> str:
    found = [entity for entity in _records(task, "entities") if isinstance(entity.get("text"), str)]
    if not found:
        return f"No names, dates, places or amounts were found{_in(task)}."
    kinds: dict[str, list[str]] = {}
    for entity in found:
        mentioned = kinds.setdefault(phrase(str(entity.get("entity") or "entity")), [])
        if (words := phrase(entity["text"])) not in mentioned:
            mentioned.append(words)
    lines = [f"- {_KINDS.get(kind.lower(), kind)}: {_listed(words)}" for kind, words in kinds.items()]
    return f"Found{_in(task)}:\n\n" + "\n".join(lines)


def _answer(task: Task) -> str:
    if not task.text:
        return ""
    details = task.data("details")
    score = details.get("score") if isinstance(details, dict) else None
    asked = f"{phrase(task.question).rstrip('?.! ')}? " if task.question else ""
    page = details.get("page") if isinstance(details, dict) else None
    where = f" (page {page})" if isinstance(page, int) and page > 1 else ""
    doubt = isinstance(score, int | float) and 0 < score < UNSURE
    hint = f" This is a guess: it is only {percent(score)} sure." if doubt else ""
    if "\n" in task.text or len(task.text) > len(phrase(task.text)):
        return f"{asked.rstrip()}{_text(task)}{where}{hint}"
    return f"{asked}**{phrase(task.text)}**{where}{hint}"


def _found(task: Task) -> str:
    count = phrase(task.text)
    pictures = _made(task)
    if not count:
        return ""
    where = f", marked in {pictures}" if pictures and _records(task, "objects") else ""
    return f"{_subject(task, 'The picture')} shows {count.rstrip('.')}{where}."


def _summary(task: Task) -> str:
    return f"Summary{_of(task)}:{_text(task)}" if task.text else ""


def _translation(task: Task) -> str:
    language = task.parameters.get("target_language")
    into = f" ({phrase(language)})" if isinstance(language, str) else ""
    return f"Translation{into}{_of(task)}:{_text(task)}" if task.text else ""


def _written(task: Task) -> str:
    return _text(task).strip() if task.text else ""


def _new(what: str) -> Callable[[Task], str]:
    def tell(task: Task) -> str:
        made = _made(task)
        return f"{what}{_of(task)} is {made}." if made else ""

    return tell


def _spoken(task: Task) -> str:
    made = _made(task)
    return f"Read aloud in {made}." if made else ""


def _segments(task: Task) -> str:
    made = _made(task)
    return f"{phrase(task.text).rstrip('.')}: {made}." if task.text and made else ""


def _anything(task: Task) -> str:
    """Any result, known or not: its text, else its data, and its files."""
    pieces = []
    if task.text:
        pieces.append(f"{task.name}{_of(task)}:{_text(task)}")
    else:
        data = {port: output.data for port, output in task.outputs.items() if isinstance(output, Json)}
        pieces += [f"{task.name}{_of(task)}, {phrase(port)}:{_data(content)}" for port, content in sorted(data.items())]
    if made := _made(task):
        pieces.append(f"{task.name}{_of(task)} made {made}.")
    return "\n\n".join(pieces) or f"{task.name}{_of(task)} is done; it gave nothing to show."


# ---------------------------------------------------------------- pieces


def _asked(source: str) -> str:
    words = _LEAD.sub("", phrase(source)).rstrip("?.! ") or phrase(source)
    return words[:1].upper() + words[1:]


def _text(task: Task) -> str:
    return quoted(task.text, f"output `text` of task {task.id}")


def _data(content: Any) -> str:
    words = json.dumps(content, ensure_ascii=False)
    return quoted(words if len(words) <= LONGEST_JSON else words[:LONGEST_JSON] + " …")


def _made(task: Task) -> str:
    return joined([named(artifact) for artifact in task.artifacts])


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - MOST_LISTED} more" if len(words) > MOST_LISTED else ""
    return ", ".join(words[:MOST_LISTED]) + more


def _records(task: Task, port: str) -> list[Mapping[str, Any]]:
    data = task.data(port)
    return [record for record in data if isinstance(record, dict)] if isinstance(data, list) else []


def _subject(task: Task, otherwise: str) -> str:
    return phrase(task.given[0]) if len(task.given) == 1 else otherwise


def _of(task: Task) -> str:
    return f" of {phrase(task.given[0])}" if len(task.given) == 1 else ""


def _in(task: Task) -> str:
    return f" in {phrase(task.given[0])}" if len(task.given) == 1 else ""


_TELLERS: Mapping[str, Callable[[Task], str]] = {
    "image-to-text": _reading,
    "automatic-speech-recognition": _transcript,
    "text-classification": _classes,
    "zero-shot-classification": _classes,
    "image-classification": _classes,
    "zero-shot-image-classification": _classes,
    "audio-classification": _classes,
    "zero-shot-audio-classification": _classes,
    "video-classification": _classes,
    "token-classification": _entities,
    "question-answering": _answer,
    "table-question-answering": _answer,
    "visual-question-answering": _answer,
    "document-question-answering": _answer,
    "object-detection": _found,
    "zero-shot-object-detection": _found,
    "keypoint-detection": _found,
    "summarization": _summary,
    "translation": _translation,
    "text-generation": _written,
    "text2text-generation": _written,
    "conversational": _written,
    "text-to-speech": _spoken,
    "text-to-audio": _new("The sound"),
    "audio-to-audio": _new("The new recording"),
    "image-to-image": _new("The new picture"),
    "image-super-resolution": _new("The larger picture"),
    "inpainting": _new("The new picture"),
    "text-to-image": _new("The picture"),
    "text-to-video": _new("The video"),
    "image-to-video": _new("The video"),
    "depth-estimation": _new("The depth"),
    "image-segmentation": _segments,
}
