"""Matches task and parameter names written by an LLM with those of the catalogue."""

import re
from collections.abc import Collection, Iterable
from difflib import SequenceMatcher
from functools import lru_cache

MIN_SIMILARITY = 0.75
"""Minimum similarity of two spellings of one word."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_LONGEST = 120
_IGNORED_WORDS = {"task", "tool", "model", "expert", "pipeline", "api", "run", "the"}
_FIXED = frozenset(
    (
        *(
            "text",
            "image",
            "audio",
            "video",
            "speech",
            "table",
            "document",
            "visual",
            "depth",
            "zero",
            "shot",
            "object",
        ),
        *("feature", "token", "mask", "question", "classification", "detection", "segmentation", "generation"),
        *("recognition", "estimation", "control", "activity"),
    )
)
"""Words that distinguish tasks; they must match exactly."""

_ALIASES = {
    "asr": "automatic-speech-recognition",
    "speech-to-text": "automatic-speech-recognition",
    "stt": "automatic-speech-recognition",
    "transcribe": "automatic-speech-recognition",
    "transcription": "automatic-speech-recognition",
    "audio-to-text": "automatic-speech-recognition",
    "audio-transcription": "automatic-speech-recognition",
    "tts": "text-to-speech",
    "speech-synthesis": "text-to-speech",
    "speech-generation": "text-to-speech",
    "ocr": "image-to-text",
    "text-recognition": "image-to-text",
    "optical-character-recognition": "image-to-text",
    "image-captioning": "image-to-text",
    "image-caption": "image-to-text",
    "captioning": "image-to-text",
    "vqa": "visual-question-answering",
    "image-question-answering": "visual-question-answering",
    "docvqa": "document-question-answering",
    "document-qa": "document-question-answering",
    "qa": "question-answering",
    "extractive-qa": "question-answering",
    "table-qa": "table-question-answering",
    "tabular-question-answering": "table-question-answering",
    "ner": "token-classification",
    "named-entity-recognition": "token-classification",
    "entity-extraction": "token-classification",
    "sentiment-analysis": "text-classification",
    "sentiment-classification": "text-classification",
    "text-summarization": "summarization",
    "document-summarization": "summarization",
    "text-translation": "translation",
    "summarize": "summarization",
    "summarise": "summarization",
    "summarisation": "summarization",
    "translate": "translation",
    "image-generation": "text-to-image",
    "video-generation": "text-to-video",
    "music-generation": "text-to-audio",
    "audio-generation": "text-to-audio",
    "image-editing": "image-to-image",
    "image-upscaling": "image-super-resolution",
    "super-resolution": "image-super-resolution",
    "upscale": "image-super-resolution",
    "image-inpainting": "inpainting",
    "pose-estimation": "keypoint-detection",
    "depth-map": "depth-estimation",
    "video-captioning": "video-to-text",
    "video-description": "video-to-text",
    "voice-conversion": "audio-to-audio",
    "noise-reduction": "audio-to-audio",
    "speech-enhancement": "audio-to-audio",
    "chat": "conversational",
    "embedding": "feature-extraction",
    "embeddings": "feature-extraction",
    "vad": "voice-activity-detection",
}


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
    """Returns the only matching name; None if there is none or more than one."""
    if requested in names:
        return requested
    query = tuple(word for word in words(requested) if word not in _IGNORED_WORDS) or words(requested)
    alias = _ALIASES.get("-".join(query))
    if not query or alias in names:
        return alias
    return (
        _only(name for name in names if normalize_name(name) == "".join(query))
        or _only(name for name in names if len(query) > 1 and _is_abbreviation(set(query), set(words(name))))
        or _only(name for name in names if _is_misspelling(query, words(name)))
    )


def shares_a_word(requested: str, name: str) -> bool:
    """Whether two names share a significant word."""
    return bool({word for word in words(requested) if len(word) > 2} & set(words(name)) - _IGNORED_WORDS)  # noqa: PLR2004  # "to" is not significant


def _is_abbreviation(query: set[str], name: set[str]) -> bool:
    """Whether a name omits only words that do not distinguish tasks."""
    return "to" not in query and query <= name and not (name - query) & _FIXED


def _is_misspelling(query: tuple[str, ...], name: tuple[str, ...]) -> bool:
    if len(query) != len(name):
        return False
    differing = [(first, second) for first, second in zip(query, name, strict=True) if first != second]
    return bool(differing) and all(first not in _FIXED and _is_similar(first, second) for first, second in differing)


def _is_similar(first: str, second: str) -> bool:
    return abs(len(first) - len(second)) <= 3 and SequenceMatcher(None, first, second).ratio() >= MIN_SIMILARITY  # noqa: PLR2004  # an ending


def _only(names: Iterable[str]) -> str | None:
    found = list(names)
    return found[0] if len(found) == 1 else None


# ---------------------------------------------------------------- parameters

_SYNONYMS = {
    "lang": "language",
    "src": "source",
    "from": "source",
    "tgt": "target",
    "dest": "target",
    "to": "target",
    "classes": "labels",
    "categories": "labels",
    "candidates": "candidate",
    "label": "labels",
    "steps": "steps",
}


def match_parameter(requested: str, names: Collection[str]) -> str | None:
    """Returns the only parameter whose name contains all words of the given one."""
    query = {_SYNONYMS.get(word, word) for word in words(requested)}
    if not query:
        return None
    return _only(name for name in names if normalize_name(name) == normalize_name(requested)) or _only(
        name for name in names if query <= set(words(name))
    )
