"""Counts of a text: words, characters, sentences, paragraphs and lines; and of the pages of a document."""

import re

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.host.media import pages
from experts.lite.text_processing import split_sentences

_UNSPACED_WORD = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
"""Characters of scripts without spaces between words (Chinese, Japanese): each counts as a word, as in editors."""
_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")


def text_statistics(_model_id: str, _device: str) -> Handler:
    """Handler without a model to load."""
    return single(_count_text)


def page_count(_model_id: str, _device: str) -> Handler:
    """Handler without a model to load."""
    return single(_count_pages)


def count_words(text: str) -> int:
    """Returns the number of words: pieces between spaces that contain a letter or digit."""
    pieces = _UNSPACED_WORD.sub(r" \1 ", text).split()
    return sum(any(character.isalnum() for character in piece) for piece in pieces)


def _count_text(inputs: Inputs, _parameters: Parameters) -> Outputs:
    text = inputs["text"]
    lines = text.splitlines()
    statistics = {
        "words": count_words(text),
        "characters": len(text),
        "characters_without_spaces": sum(not character.isspace() for character in text),
        "sentences": len(split_sentences(text)),
        "paragraphs": sum(bool(paragraph.strip()) for paragraph in _PARAGRAPH_BREAK.split(text)),
        "lines": len(lines),
        "empty_lines": sum(not line.strip() for line in lines),
    }
    return {"statistics": statistics, "text": _describe(statistics)}


def _describe(statistics: dict[str, int]) -> str:
    empty = f" ({statistics['empty_lines']:,} of them empty)" if statistics["empty_lines"] else ""
    return (
        f"{number_of(statistics['words'], 'word')}, {number_of(statistics['characters'], 'character')}"
        f" ({statistics['characters_without_spaces']:,} without spaces),"
        f" {number_of(statistics['sentences'], 'sentence')}, {number_of(statistics['paragraphs'], 'paragraph')},"
        f" {number_of(statistics['lines'], 'line')}{empty}"
    )


def number_of(count: int, noun: str) -> str:
    """Returns a count with its noun: "1 word", "1,200 words"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _count_pages(inputs: Inputs, _parameters: Parameters) -> Outputs:
    count = len(pages(inputs["image"]))
    return {"statistics": {"pages": count}, "text": number_of(count, "page")}
