"""Data as Markdown: escaped, on one line where needed, and limited in length."""

import re

from services.responder.run_summary import Artifact

MAX_TEXT_LENGTH = 1_500
"""Characters of a text that an answer shows."""

MAX_INLINE_LENGTH = 200
"""Characters of a text inside a sentence."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_MARKS = re.compile(r"[\[<]|\\(?=[^\w\s])")
_KILO = 1_000
_KINDS = {"image": "picture", "audio": "recording", "video": "video", "text": "text", "application/pdf": "PDF"}


def escape_markdown(text: str) -> str:
    """Escapes links, images and HTML, and removes control characters."""
    return _MARKS.sub(r"\\\g<0>", CONTROL.sub("", text))


def inline(text: str) -> str:
    """Returns the text escaped on one line, truncated to MAX_INLINE_LENGTH."""
    line = " ".join(text.split())
    return escape_markdown(line if len(line) <= MAX_INLINE_LENGTH else _cut(line, MAX_INLINE_LENGTH) + " …")


def inline_full(text: str) -> str:
    """Returns the text escaped on one line, without a length limit, for messages of the services."""
    return escape_markdown(" ".join(text.split()))


def quote(text: str, complete_at: str = "") -> str:
    """Quotes a text after a colon: inline if short, else as a block quotation, truncated if too long.

    Args:
        text: to quote.
        complete_at: where the complete text can be found.
    """
    text = text.strip()
    if "\n" not in text and len(text) <= MAX_INLINE_LENGTH:
        return f" “{escape_markdown(text)}”"
    excerpt = text if len(text) <= MAX_TEXT_LENGTH else _cut(text, MAX_TEXT_LENGTH) + " …"
    lines = "\n".join(f"> {escape_markdown(line)}".rstrip() for line in excerpt.splitlines())
    if excerpt == text:
        return f"\n\n{lines}"
    where = f"; the complete text is {complete_at}" if complete_at else ""
    return f"\n\n{lines}\n\n(The first {len(excerpt) - 2:,} of {len(text):,} characters{where}.)"


def describe_file(artifact: Artifact) -> str:
    """Describes a file by name, kind and size."""
    family = artifact.media_type.partition("/")[0]
    kind = _KINDS.get(artifact.media_type) or _KINDS.get(family) or artifact.media_type or "file"
    return f"{inline(artifact.name) or 'a file'} ({kind}, {format_size(artifact.size_bytes)})"


def format_size(count: int) -> str:
    """Formats a number of bytes, such as "1.5 KB"."""
    amount, unit = float(count), "bytes"
    for larger in ("KB", "MB", "GB"):
        if amount < _KILO:
            break
        amount, unit = amount / _KILO, larger
    return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 10 else f"{amount:.1f} {unit}"  # noqa: PLR2004  # two significant digits


def format_percent(score: object) -> str:
    """Formats a score from 0 to 1 as a percentage; empty if it is not one."""
    usable = isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1
    return f"{score:.0%}" if usable else ""


def join_list(words: list[str]) -> str:
    """Joins words with commas and a final "and"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def shorten(text: str, length: int) -> str:
    """Shortens a text to about `length` characters: replaces its middle by the number of characters left out."""
    if len(text) <= length:
        return text
    head = length * 2 // 3
    tail = length - head
    return f"{text[:head]} […{len(text) - length:,} characters left out…] {text[len(text) - tail :]}"


def _cut(text: str, length: int) -> str:
    head = text[:length]
    return head.rsplit(maxsplit=1)[0] if " " in head[length // 2 :] else head
