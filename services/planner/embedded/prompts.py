"""Descriptions of what is to be made, in the words of the request, without orders and words for pictures or maps."""

import re
from collections.abc import Iterator
from functools import cache

from services.planner.embedded.endings import ending, is_other
from services.planner.embedded.patterns import Lexicon
from services.planner.embedded.wording import MARKED
from services.planner.task_spec import Modality

_ARTICLE = r"(?:an?|one|some|two|three)\s"
_INDEFINITE = r"(?=(?:an?|one|some|two|three)\s)"
_MAKE = (
    r"(?:\b(?:generat(?:e|ing)|creat(?:e|ing)|draw(?:n|ing)?|mak(?:e|es|ing)|paint(?:ing)?|design|render(?:ing)?|produc(?:e|ing)|illustrate|sketch|build"
    r"|visuali[sz]e|imagine|compose|film|show|giv(?:e|es)|get|want|need|have|like|love|see|hear|needs|dream\s+up)\b)"
)
_PICTURE = (
    r"(?:images?|img|pictures?|pics?|photos?|illustrations?|visuals?|videos?|vids?|clips?|films?|movies?|movie\s+scenes?|footage|animations?"
    r"|b-roll|moving\s+scenes?|scenes?|sfx|sound\s+effects?|audio|recordings?)"
)
_MAP = re.compile(
    r"\b(?:canny|hed|m-?lsd|depth(?:2img)?|normals?|normalmap|pose|poses|posture|openpose|stick\s+figure|scribbl\w*|doodle|strokes?|segmentation|segments?|seg"
    r"|segmap|colou?r\s+(?:regions?|segments?)|regions?|areas?|edges?|lines?|outlines?|maps?|depthmap|layout|contours?|skeleton|composition)\b"
)
_DEFINITE = re.compile(
    r"(?:the|this|that|these|those|my|our|your|his|her|its|their|it|them|him|me|us|you|same|what|each|all|attached|given|guided|using|based|following|here|i|we|there)\b|"
    + MARKED
)
_TAIL = re.compile(
    r",?\s+(?:that|which)\s+(?:follows?|keeps?|fits?|respects?|sticks?|takes?|stands?|match(?:es)?|uses?|obeys?|has|have)\b"
    r"|\s+standing\s+(?:exactly\s+)?like\b"
    r"|,?\s+(?:that|who)\s+stands\b"
    r"|,?\s+(?:from|using|use|with|out\s+of|based\s+on|in|into|on|onto|along|according\s+to|by|guided\s+by|given\s+by|over|to|as|following|keeping|like)"
    r"\s+(?:exactly\s+)?(?:this|that|these|those|the|my|our|its|her|his|their|it|them|attached|same)\b(?!\s+(?:moon|beach|sea|sun|night|snow|rain|desert|forest|city|style))"
)
_ARROW = re.compile(r"->")
_LEADS = (
    re.compile(r"(?:->|→|=>)\s*"),
    re.compile(
        rf"\b(?:{_MAKE}|turn|convert|change)\s+(?:(?:me|us|it|that|this|them|of|her|him|out|again|[\w'-]+\s+[\w'-]+|(?:the|this|that|my|her|his)\s+[\w'-]+)\s+)??"
        r"(?:(?:into|to|as|of)\s+)?" + _INDEFINITE
    ),
    re.compile(r"\b(?:becomes?|but\s+as|render\s+as|again\s+as)\s+"),
    re.compile(r":\s*"),
    re.compile(rf"\b(?:for|as|into|to|but|of\s+it|not\s+[\w']+\s+but|from\s+it|in\s+it)\s+{_INDEFINITE}"),
    re.compile(rf"(?:^|[,;.!?]|\b(?:then|and|from|pose|with\s+(?:it|this|that|these|those)))\s*{_INDEFINITE}"),
    re.compile(rf"\b(?:{_MAKE})\s+(?!(?:sure|it\s))"),
    re.compile(r"\b(?:but|then|as)\s+"),
    re.compile(r"(?:^|[,;])\s*"),
)
_POLITE = re.compile(
    r"(?:(?:please|pls|then|and|also|but|me|us|i'd\s+like|i\s+want|could\s+you|can\s+you|i'm)\b"
    r"|(?:from|with|out\s+of|of|using|after|on)\s+(?:it|this|that|them|these|those)\b|one\s+of(?=\s+an?\b)|(?:an?\s+)?(?:image|img|picture|pic)s?\s+of\b)[\s,:]*"
)
_KIND = re.compile(
    rf"(?:(?:an?|the|some|one|two|three|short|little|small|new)\s+)*(?:{_PICTURE})"
    r"(?:(?:\s+(?:of|showing|with|about|depicting|representing|that\s+(?:shows?|depicts?))|\s*[:,-])\s+|$)"
)
_PAIR = re.compile(r"\s*,?\s+and\s+(?=(?:an?|one)\s)|\s*,\s*(?=(?:and\s+)?(?:an?|one)\s)")


_INSERTED = (
    re.compile(rf"\b(?:with|by|for|into|becomes?)\s+{_INDEFINITE}"),
    re.compile(r"\b(?:put|have|add|insert|place)\s+(?=an?\s)"),
    re.compile(r"\b(?:with|by|into)\s+(?=[a-z]+\W*$)"),
    *_LEADS,
)
_THERE = re.compile(
    r"\s+(?:where\b|there\b|instead\b|in\s+(?:its|their|his|her|the)\s+(?:place|hole|gap)\b|into\s+the\b)"
)


def inserted(text: str, masked: str, lexicon: Lexicon) -> list[str]:
    """The requested content of the masked part of a picture; empty if the words name none."""
    for lead in _INSERTED:
        for found in lead.finditer(masked):
            if span := _span(masked, found.end(), lexicon):
                there = _THERE.search(masked, *span)
                return [_tidy(text[span[0] : there.start() if there else span[1]])]
    return []


def from_map(text: str, masked: str, lexicon: Lexicon) -> list[str]:
    """What is to be made after a map: one description for each picture; none if there is none."""
    masked = _with_arrows(text, masked)
    for lead in _LEADS:
        for found in lead.finditer(masked):
            if span := _span(masked, found.end(), lexicon):
                return [_tidy(text[start:end]) for start, end in _each(masked, *span)]
    return []


def _with_arrows(text: str, masked: str) -> str:
    """The arrows that are read as "to" elsewhere."""
    for arrow in _ARROW.finditer(text):
        masked = masked[: arrow.start()] + arrow.group() + masked[arrow.end() :]
    return masked


def _span(masked: str, start: int, lexicon: Lexicon) -> tuple[int, int] | None:
    while polite := _POLITE.match(masked, start):
        start = polite.end()
    if start >= len(masked) or _DEFINITE.match(masked, start):
        return None
    end = ending(masked, start, len(masked), lexicon)
    tail = _TAIL.search(masked, start, end)
    end = tail.start() if tail else end
    words = masked[start:end]
    if _MAP.search(words) or not re.search(r"\w\w", words) or re.search(MARKED, words):
        return None
    return start, end


def _each(masked: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    if not re.match(r"(?:an?|one)\s", masked[start:end]):
        yield start, end
        return
    at = start
    for pair in _PAIR.finditer(masked, start, end):
        yield at, pair.start()
        at = pair.end()
    yield at, end


def _tidy(words: str) -> str:
    return words.strip(" .,:;!?-\n\t")


_KINDS = {
    Modality.IMAGE: r"(?:images?|img|pictures?|pics?|photos?|illustrations?|visuals?|scenes?|wallpapers?|artworks?"
    r"|visuali[sz]ations?|visual\s+representations?)",
    Modality.VIDEO: r"(?:videos?|vids?|clips?|films?|movies?|(?:movie|moving)\s+scenes?|footage|animations?|b-roll)",
    Modality.AUDIO: r"(?:sfx|sound\s+effects?|audio|recordings?|sounds?)",
}
_OTHER = re.compile(
    rf"\s*(?:,\s*|\s)(?:and|plus)?\s*(?:(?:an?|the|some|one|matching)\s+){{1,4}}(?:(?:short|matching|background)\s+){{0,3}}(?:{'|'.join(_KINDS.values())}|depth\s+map|music|noise)\s+(?:of|with)\s"
)
_BESIDES = re.compile(
    r",?\s+(?:please\b|pls\b|for\s+(?:me|us|my|our)\b|as\s+an?\s+(?:[\w-]+\s+)?(?:image|picture|photo|video|clip|animation|sound|audio|film)\b"
    r"|that\s+you\b|without\s+(?:an?\s+|any\s+)?(?:background|text|people|shadows)|(?:could|might|may|would)\s+(?:look|sound)\s+like|and\s*$|first\s*$)"
)
_POINTED_AT = re.compile(
    rf"(?:{_MAKE}\s+)?(?:this|that|these|those|it|them|him|her|me|us|you|my|his|their|our|both|each|all)\b|{MARKED}"
)
_SOUND_OF = re.compile(r"the\s+[a-z-]+\s+of\b")
_MADE = re.compile(_MAKE)
_MEASURED = re.compile(
    r"(?:(?:\d+|ten|five|twenty|thirty)[\s-]*(?:px|pixels?|frames?|s|secs?|seconds?|minutes?)\s+(?:of\s+)?|\d{2,4}\s?x\s?\d{2,4},?\s+|what\s+)"
)

_COUNTED = re.compile(rf"\b(?:two|three|four|five)\s+(?:[\w-]+\s+)?(?:{'|'.join(_KINDS.values())})\b")
_COMMA = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+")


_MOTION = re.compile(
    r"\b(?:let|have|(?:make|see|watch|can|could|should)\s+(?=(?:the|her|his|its|their|my)\s))\s*"
    r"(?:(?:me|us)\s+see\s+)?(?:the|her|him|them)?\s*(?=[a-z]+\s+[a-z]|wave|fall|dance|fly|walk|run)"
)
_ONLY_MOVES = re.compile(
    rf"\b(?:it|this|these|that|move[sd]?|moving|motion|life|alive|animated?|{_KINDS[Modality.VIDEO]})\b(?!\s+(?:old\s+)?(?:photo|picture|postcard))|{MARKED}"
)


def motion(text: str, masked: str, lexicon: Lexicon) -> str:
    """What is to happen in a picture that is to move; empty if it is only to move."""
    for found in _MOTION.finditer(masked):
        end = ending(masked, found.end(), len(masked), lexicon)
        if not _ONLY_MOVES.search(masked, found.end(), end):
            return _tidy(text[found.end() : end])
    return ""


def plain(text: str, masked: str, lexicon: Lexicon, *, kind: Modality) -> list[str]:
    """What is to be shown or heard: of each picture that is called one, else what is described first."""
    for several, lead in _plain_leads(kind):
        spans = [span for found in lead.finditer(masked) if (span := _plain_span(masked, found.end(), lexicon))]
        if spans:
            listed = _COUNTED.search(masked, 0, spans[0][0]) and not several
            each = [
                one
                for span in spans[: None if several else 1]
                for one in (_listed(masked, *span) if listed else [span])
            ]
            return [_tidy(text[start:end]) for start, end in each]
    return []


@cache
def _plain_leads(kind: Modality) -> tuple[tuple[bool, re.Pattern[str]], ...]:
    noun = _KINDS.get(kind, _KINDS[Modality.IMAGE])
    of = r"of|showing|depicting|representing|where|in\s+which|with" if kind is not Modality.AUDIO else r"of"
    whole = rf"(?!(?:sound|noise)s?\b){noun}" if kind is Modality.AUDIO else noun
    return (
        (True, re.compile(rf"(?<![\w-])(?<!depth map of )(?<!map of an ){whole}\s+(?:{of})\s+")),
        (False, re.compile(rf"(?<![\w-]){noun}\s*(?::|,\s(?:[\d]+\s?x\s?\d+,\s)?(?!\d)|\s-\s)\s*")),
        (False, re.compile(rf"(?:^|\b{_MAKE}\s+)(?:(?:me|us)\s+)?(?={_ARTICLE})")),
        (False, re.compile(rf"\b{_MAKE}\s*:?\s+(?:(?:me|us)\s+)?(?!(?:it|sure|to|{_ARTICLE}{noun})\b)")),
        (False, re.compile(r"^")),
    )


def _listed(masked: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    for comma in _COMMA.finditer(masked, start, end):
        yield at, comma.start()
        at = comma.end()
    yield at, end


def _plain_span(masked: str, start: int, lexicon: Lexicon) -> tuple[int, int] | None:
    while polite := (_POLITE.match(masked, start) or _MEASURED.match(masked, start)):
        start = polite.end()
    other = is_other(masked, start) and not _SOUND_OF.match(masked, start)
    ordered = lexicon.verb.match(masked, start) and not _MADE.match(masked, start)
    if start >= len(masked) or _POINTED_AT.match(masked, start) or other or ordered:
        return None
    end = ending(masked, start, len(masked), lexicon)
    for over in (_OTHER, _BESIDES):
        found = over.search(masked, start + 1, end)
        end = found.start() if found else end
    return (start, end) if masked[start:end].strip(" .,") else None
