"""A request's words with what is not an instruction masked out: file names and quoted or pasted text.

Every masked character is replaced by a private-use character for the kind of content, so that positions stay the same
and patterns match nothing inside content.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from services.planner.embedded.quotations import quotations
from services.planner.embedded.resources import LIKE_A_FILE, LIKE_A_URL, Resource, modality_of_name, names_of
from services.planner.task_spec import Modality

MARKS = {
    Modality.IMAGE: "\ue001",
    Modality.AUDIO: "\ue002",
    Modality.VIDEO: "\ue003",
    Modality.TEXT: "\ue004",
    Modality.TABLE: "\ue005",
    Modality.JSON: "\ue005",
    Modality.UNSPECIFIED: "\ue008",
}
QUOTE_MARK, PDF_MARK = "\ue006", "\ue007"
MARKED = "[\ue001-\ue008]"
FILLING = "\ue009"
"""Replaces the inside of long white space."""

_ALL_MARKS = (*MARKS.values(), QUOTE_MARK, PDF_MARK, FILLING)
_BLANK = re.compile(r"\s{8,}")

_EXCLUDING = re.compile(
    r"\b(?:ignor(?:e|ing)|skip(?:ping)?|except(?:\s+for)?|excluding|(?:all|everything)\s+but|apart\s+from|other\s+than|leav(?:e|ing)\s+out|not)"
    r"\s+(?:the\s+)?(?:\w+\s+)?$"
)
_LOOKBACK = 200
"""Characters before a file in which words can exclude it: there may be thousands of files."""

_TARGET = re.compile(r"(?:\b(?:save|store|export|download|output)\b[^.!?\n]{0,40}|\b(?:(?:in)?to|as)\s+)$")


@dataclass(frozen=True, slots=True)
class Mention:
    """A file named in the words; without a resource it was not sent."""

    start: int
    end: int
    name: str
    modality: Modality
    resource: Resource | None
    target: bool
    """The words name it as where a result should go."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Content within the words: quoted, or pasted after a colon or next to a line that requests something."""

    start: int
    end: int
    text: str
    quoted: bool = True

    @property
    def asks(self) -> bool:
        return self.text.rstrip().endswith("?")


@dataclass(frozen=True, slots=True)
class Wording:
    text: str
    masked: str
    """Lower case, of the same length as text."""
    mentions: tuple[Mention, ...] = ()
    payloads: tuple[Payload, ...] = ()
    mended: tuple[tuple[int, int], ...] = ()
    """Where typos were corrected."""

    def excluded(self) -> tuple[Mention, ...]:
        """The files the words leave out: "all but a.png"."""
        return tuple(
            mention
            for mention in self.mentions
            if _EXCLUDING.search(self.masked, max(0, mention.start - _LOOKBACK), mention.start)
        )

    def without(self, mentions: Iterable[Mention]) -> "Wording":
        """The same words with some files not meant by them."""
        left_out = set(mentions)
        return replace(self, mentions=tuple(mention for mention in self.mentions if mention not in left_out))

    def with_payload(self, start: int, end: int) -> "Wording":
        """The same words with a stretch of pasted text taken for content."""
        payload = Payload(start, end, self.text[start:end].strip(), quoted=False)
        masked = self.masked[:start] + QUOTE_MARK * (end - start) + self.masked[end:]
        mentions = tuple(mention for mention in self.mentions if not start <= mention.start < end)
        within = tuple(other for other in self.payloads if not start <= other.start < end)
        return replace(self, masked=masked, mentions=mentions, payloads=(*within, payload))


def read(text: str, resources: Iterable[Resource]) -> Wording:
    """Masks quotations and file names."""
    known = [(name, resource) for resource in resources for name in names_of(resource)]
    known.sort(key=lambda pair: len(pair[0]), reverse=True)
    masked, mentions, payloads = _lower(text), list[Mention](), list[Payload]()
    for quote in quotations(text):
        content = text[quote.inner_start : quote.inner_end]
        if mention := _whole(content.strip(), quote.inner_start, known, masked):
            mentions.append(mention)
            masked = _covered(masked, quote.start, quote.end, _mark(mention))
        else:
            payloads.append(Payload(quote.start, quote.end, content.strip()))
            masked = _covered(masked, quote.start, quote.end, QUOTE_MARK)
            masked = _with_full_stop(text, masked, quote.end, content)
    for mention in _unquoted(masked, known):
        mentions.append(mention)
        masked = _covered(masked, mention.start, mention.end, _mark(mention))
    mentions.sort(key=lambda mention: mention.start)
    return Wording(text, masked, tuple(mentions), tuple(payloads))


def _lower(text: str) -> str:
    lowered = "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
    plain = lowered.replace("’", "'").replace("->", "to").translate({ord(mark): " " for mark in _ALL_MARKS})
    return _BLANK.sub(_filled, plain)


def _filled(blank: re.Match[str]) -> str:
    """White space of the same length that no pattern can spend its time on."""
    edge = "\n" if "\n" in blank.group() else " "
    return edge + FILLING * (len(blank.group()) - 2) + edge


def _covered(masked: str, start: int, end: int, mark: str) -> str:
    return masked[:start] + mark * (end - start) + masked[end:]


def _with_full_stop(text: str, masked: str, end: int, content: str) -> str:
    """A quotation that ends a sentence still ends it when masked."""
    follows = text[end:].lstrip()
    if content.rstrip().endswith((".", "!", "?")) and follows[:1].isupper() and text[end : end + 1].isspace():
        return masked[: end - 1] + "." + masked[end:]
    return masked


def _mark(mention: Mention) -> str:
    pdf = mention.resource.pdf if mention.resource else mention.name.lower().endswith(".pdf")
    return PDF_MARK if pdf else MARKS[mention.modality]


def _whole(content: str, start: int, known: list[tuple[str, Resource]], masked: str) -> Mention | None:
    for name, resource in known:
        if content.lower() == name:
            return _mention(start, start + len(content), content, resource, masked)
    if LIKE_A_FILE.fullmatch(content):
        return _mention(start, start + len(content), content, None, masked)
    return None


def _unquoted(masked: str, known: list[tuple[str, Resource]]) -> Iterator[Mention]:
    taken: list[tuple[int, int]] = []

    def free(start: int, end: int) -> bool:
        return all(end <= other_start or start >= other_end for other_start, other_end in taken)

    for url in LIKE_A_URL.finditer(masked):
        taken.append(url.span())
        resource = next((resource for name, resource in known if url.group().endswith("/" + name)), None)
        yield _mention(*url.span(), url.group(), resource, masked)
    for name, resource in known:
        for found in re.finditer(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", masked):
            if free(*found.span()):
                taken.append(found.span())
                yield _mention(*found.span(), found.group(), resource, masked)
    for found in LIKE_A_FILE.finditer(masked):
        if free(*found.span()):
            yield _mention(*found.span(), found.group(), None, masked)


def _mention(start: int, end: int, name: str, resource: Resource | None, masked: str) -> Mention:
    modality = resource.modalities[0] if resource and resource.modalities else modality_of_name(name)
    target = resource is None and bool(_TARGET.search(masked[max(0, start - 60) : start]))
    return Mention(start, end, name, modality, resource, target)
