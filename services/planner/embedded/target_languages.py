"""Target languages of translations, wherever a request names them."""

import re
from functools import lru_cache

from services.planner.embedded.languages import NAME, TAGS

_INTO = re.compile(r"\b(?:(?:in)?to\s+(?:the\s+|an?\s+)?|as\s+an?\s+|[-→]>?\s*)$")
_IN = re.compile(r"\bin\s+$")
_AWAY = re.compile(
    r"\b(?:from|not|no|speaks?|only\s+reads?|my|our|his|her|i|we)\s+(?:the\s+)?$"
    r"|\b(?:is|are|was|were|it's|that's|they're)\s+(?:all\s+)?(?:written\s+|spoken\s+)?(?:in\s+)?$"
    r"|\b(?:got|have|sent|wrote|written|recorded|spoken|speaking|speaks?|received|says?|describes|left|reads)\b[^.;:!?]{0,40}\bin\s+$"
)
_OF = re.compile(r"\b(?:this|that|these|the|my|an?|his|her|our|some)\s+(?:\w+\s+)?$")
_THING = re.compile(
    r"\s+(?!(?:translation|version|one|audio|speech|voice|text\s+to|for|of|and|or|as|in|please|then|first|too|instead|say|says|call|calls)\b)[a-z]{3,}"
)
_RESULT = re.compile(r"\s+(?:translations?|versions?)\b")
_AND = re.compile(
    r"[\s,/&()]*(?:\b(?:and|or|also|then|as\s+well\s+as|plus|separately|in|to|into|both|once|one)\b[\s,/&]*)*"
)
_POLISHING = re.compile(r"polish\s+(?:up|my|this|the|our|it|his|her|that|[a-z]+ed)\b|polish,?\s+(?:then|and)\b")
"""What is done to a text, not a language."""

_ONLY = re.compile(r"\bi\s+(?:only|just)\s+(?:speak|read|understand|know)\s+$")


def target_languages(masked: str, start: int, end: int) -> list[str]:
    """Tags of the target languages that the words between two positions name, else of the nearest other words.

    Languages of the input do not count; "French, Dutch and Thai" count together.
    """
    groups = _groups(masked)
    within = [group for group in groups if any(start <= at < end for at, _, _ in group)]
    chosen = within or groups[:1]
    sure = [group for group in chosen if any(certain for _, certain, _ in group)]
    return list(dict.fromkeys(tag for _, _, tag in (sure or chosen or [[]])[0]))


@lru_cache(maxsize=4)
def _groups(masked: str) -> list[list[tuple[int, bool, str]]]:
    groups: list[list[tuple[int, bool, str]]] = []
    last = -1
    for name in NAME.finditer(masked):
        joined = bool(groups) and last >= 0 and bool(_AND.fullmatch(masked, last, name.start()))
        last = -1
        if not joined and not _is_target(masked, name):
            continue
        certain = bool(
            _INTO.search(masked, max(0, name.start() - 12), name.start()) or _RESULT.match(masked, name.end())
        )
        hit = name.start(), certain, TAGS[name.group()]
        if joined:
            groups[-1].append(hit)
        else:
            groups.append([hit])
        last = name.end()
    return groups


def _is_target(masked: str, name: re.Match[str]) -> bool:
    if _POLISHING.match(masked, name.start()):
        return False
    before = masked[max(0, name.start() - 60) : name.start()]
    if _INTO.search(before) or _ONLY.search(before) or _RESULT.match(masked, name.end()):
        return not re.search(r"\bnot\s+(?:in)?to\s+$", before)
    if _AWAY.search(before):
        return False
    return bool(_IN.search(before)) or not (_OF.search(before) and _THING.match(masked, name.end()))
