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
    """A name without what joins its words."""
    return "".join(words(name))


def match_task(asked: str, names: Collection[str]) -> str | None:
    """The one name that is meant; None where there is none, or more than one could be."""
    if asked in names:
        return asked
    said = tuple(word for word in words(asked) if word not in _IGNORED_WORDS) or words(asked)
    alias = _ALIASES.get("-".join(said))
    if not said or alias in names:
        return alias
    return (
        _only(name for name in names if normalize_name(name) == "".join(said))
        or _only(name for name in names if len(said) > 1 and _abridged(set(said), set(words(name))))
        or _only(name for name in names if _slipped(said, words(name)))
    )


def shares_a_word(asked: str, name: str) -> bool:
    """Whether two names have a word in common that says something."""
    return bool({word for word in words(asked) if len(word) > 2} & set(words(name)) - _IGNORED_WORDS)  # noqa: PLR2004  # "to" says nothing


def _abridged(said: set[str], name: set[str]) -> bool:
    """Whether only words are left out that do not tell one task from another."""
    return "to" not in said and said <= name and not (name - said) & _FIXED


def _slipped(said: tuple[str, ...], name: tuple[str, ...]) -> bool:
    if len(said) != len(name):
        return False
    differing = [(one, other) for one, other in zip(said, name, strict=True) if one != other]
    return bool(differing) and all(one not in _FIXED and _alike(one, other) for one, other in differing)


def _alike(one: str, other: str) -> bool:
    return abs(len(one) - len(other)) <= 3 and SequenceMatcher(None, one, other).ratio() >= MIN_SIMILARITY  # noqa: PLR2004  # an ending


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


def match_parameter(asked: str, names: Collection[str]) -> str | None:
    """Returns the only parameter whose name contains all words of the given one."""
    said = {_SYNONYMS.get(word, word) for word in words(asked)}
    if not said:
        return None
    return _only(name for name in names if normalize_name(name) == normalize_name(asked)) or _only(
        name for name in names if said <= set(words(name))
    )
