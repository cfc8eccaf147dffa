"""How data stands in an answer: as what it is, never as markup, and not at any length."""

import re

from services.responder.run_summary import Artifact

LONGEST_TEXT = 1_500
"""Characters of one text that an answer shows."""

LONGEST_PHRASE = 200
"""Characters of what stands within a sentence."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_MARKS = re.compile(r"[\[<]|\\(?=[^\w\s])")
_KILO = 1_000
_KINDS = {"image": "picture", "audio": "recording", "video": "video", "text": "text", "application/pdf": "PDF"}


def inert(text: str) -> str:
    """Text in which nothing is a link, a picture, HTML or a terminal's control character."""
    return _MARKS.sub(r"\\\g<0>", CONTROL.sub("", text))


def phrase(text: str) -> str:
    """Text on one line, cut to fit into a sentence."""
    line = " ".join(text.split())
    return inert(line if len(line) <= LONGEST_PHRASE else _cut(line, LONGEST_PHRASE) + " …")


def whole(text: str) -> str:
    """Text on one line, however long: what the house itself has to say."""
    return inert(" ".join(text.split()))


def quoted(text: str, whole: str = "") -> str:
    """A text of any length, to stand after a colon: short in quotation marks, long as a quotation, cut if too long.

    Args:
        text: the text.
        whole: where the whole of it can be found.
    """
    text = text.strip()
    if "\n" not in text and len(text) <= LONGEST_PHRASE:
        return f" “{inert(text)}”"
    shown = text if len(text) <= LONGEST_TEXT else _cut(text, LONGEST_TEXT) + " …"
    lines = "\n".join(f"> {inert(line)}".rstrip() for line in shown.splitlines())
    if shown == text:
        return f"\n\n{lines}"
    where = f"; the whole is {whole}" if whole else ""
    return f"\n\n{lines}\n\n(The first {len(shown) - 2:,} of {len(text):,} characters{where}.)"


def named(artifact: Artifact) -> str:
    """A file with its kind and size."""
    family = artifact.media_type.partition("/")[0]
    kind = _KINDS.get(artifact.media_type) or _KINDS.get(family) or artifact.media_type or "file"
    return f"{phrase(artifact.name) or 'a file'} ({kind}, {size(artifact.size_bytes)})"


def size(count: int) -> str:
    """Bytes as a person says them."""
    amount, unit = float(count), "bytes"
    for larger in ("KB", "MB", "GB"):
        if amount < _KILO:
            break
        amount, unit = amount / _KILO, larger
    return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 10 else f"{amount:.1f} {unit}"  # noqa: PLR2004  # two digits say enough


def percent(score: object) -> str:
    """A score from 0 to 1; empty if it is none."""
    usable = isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1
    return f"{score:.0%}" if usable else ""


def joined(words: list[str]) -> str:
    """A list as it is spoken."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def shortened(text: str, room: int) -> str:
    """A text in at most about so many characters: its middle is left out, and it says how much that is."""
    if len(text) <= room:
        return text
    head = room * 2 // 3
    tail = room - head
    return f"{text[:head]} […{len(text) - room:,} characters left out…] {text[len(text) - tail :]}"


def _cut(text: str, length: int) -> str:
    head = text[:length]
    return head.rsplit(maxsplit=1)[0] if " " in head[length // 2 :] else head
