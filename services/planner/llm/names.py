"""Matches task and parameter names written by an LLM with those of the catalogue."""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_LONGEST = 120

_ALIASES = {
    "asr": "automatic-speech-recognition",
    "speech-recognition": "automatic-speech-recognition",
    "speech-to-text": "automatic-speech-recognition",
    "transcription": "automatic-speech-recognition",
    "tts": "text-to-speech",
    "speech-synthesis": "text-to-speech",
    "ocr": "image-to-text",
    "optical-character-recognition": "image-to-text",
    "image-captioning": "image-to-text",
    "vqa": "visual-question-answering",
    "ner": "token-classification",
    "named-entity-recognition": "token-classification",
    "sentiment-analysis": "text-classification",
    "sentiment-classification": "text-classification",
    "text-summarization": "summarization",
    "image-generation": "text-to-image",
    "image-editing": "image-to-image",
    "super-resolution": "image-super-resolution",
    "image-inpainting": "inpainting",
    "pose-estimation": "keypoint-detection",
}
"""Common names of tasks that the Hub calls otherwise."""


def words(name: str) -> tuple[str, ...]:
    """Splits a name into lower-case words."""
    return _words(name[:_LONGEST])


@lru_cache(maxsize=8_192)
def _words(name: str) -> tuple[str, ...]:
    return tuple(word.casefold() for word in _WORD.findall(name))


def normalize_name(name: str) -> str:
    """The words of a name, joined without separators."""
    return "".join(words(name))


def match_task(requested: str, names: Collection[str]) -> str | None:
    """Returns the task that a name means: the same words in any spelling, or an alias. None if it is not available."""
    if requested in names:
        return requested
    alias = _ALIASES.get("-".join(words(requested)))
    if alias in names:
        return alias
    return _only(name for name in names if normalize_name(name) == normalize_name(requested))


# ---------------------------------------------------------------- parameters

_SYNONYMS = {"lang": "language", "src": "source", "tgt": "target", "classes": "labels"}


def match_parameter(requested: str, names: Collection[str]) -> str | None:
    """Returns the only parameter whose name contains all words of the given one."""
    query = {_SYNONYMS.get(word, word) for word in words(requested)}
    found = ((name, set(words(name))) for name in names)
    return _only(name for name, known in found if query and query <= known and "negative" not in known - query)


def _only(names: Iterable[str]) -> str | None:
    found = list(names)
    return found[0] if len(found) == 1 else None
