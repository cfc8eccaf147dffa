"""Ends of descriptions and of orders: where the words that follow request something else."""

import re
from collections.abc import Iterator

from services.planner.embedded.languages import PATTERN as LANGUAGE
from services.planner.embedded.patterns import CERTAIN, Lexicon

_JOINT = re.compile(
    r"\s*(?:[,;:.!?()—–\n]|->|→|=>|\s[-+&]\s)\s*(?:(?:and|but|plus|then|also)\s+)*|\s+(?:and|but|then|plus|also)\s+",
    re.IGNORECASE,
)
_ELSE = re.compile(
    r"(?:then|after(?:wards|\s+(?:that|this|which))|finally|next|lastly|separately|once|before|please|pls|plz|thanks?|thx|lol)\b"
    r"|(?:to|for)\s+(?:me|us)\b"
    rf"|(?:in|into|to)\s+(?:{LANGUAGE})\b"
    r"|(?:as|in|by|with|on)\s+(?:an?\s+)?(?:video|clip|image|picture|audio|sound|speech|voice|text|spoken|speaker)"
    r"|(?:no|without|avoid|seed|its|their|his|her|the|that|those|them|it)\b"
    r"|(?:see|answer|tell|say|speak|spoken|speech|aloud|out\s+loud|read|voiced?|painted|enlarged?|upscaled?|bigger|larger|moving|animated?)\b"
    r"|(?:about\s+)?(?:\d+|one|two|three|five|ten|half\s+a)[\s-]*(?:px|pixels?|frames?|s|secs?|seconds?|min|minutes?|steps?|files?)\b"
    r"|\d{2,4}\s?(?:x|×|by)\s?\d{2,4}\b|\d+x\b"
    r"|could\s+you\b|can\s+you\b|what\b|how\b|who\b|which\b"
)
"""Beginning of words that state something else: the next step, the form of the result, or a measure."""

_NEXT_ORDER = re.compile(
    r"(?:then|after(?:wards|\s+(?:that|this|which))|finally|next|lastly|separately|once\s+(?:you|that|it)|please|pls|thanks?|thx|lol"
    r"|narrated|spoken|aloud|out\s+loud|read\s+(?:aloud|out|to)|could\s+you|can\s+you)\b"
    rf"|(?:in|into|to)\s+(?:{LANGUAGE})\b"
    r"|(?:(?:just|only)\s+)?(?:its|their|the)\s+(?:\w+\s+)?(?:summary|gist|translation|caption|mood|tone)\b"
)
_OBJECT = re.compile(
    r"[a-z-]+\s+(?:it|them|that|this|these|those|the|an?|my|his|her|its|their|both|each|all|me|in|to|into|as|out|aloud|what|whether|how)\b|[a-z]+\W*$"
)
"""Continuation of an order after its verb."""

_BEFORE = re.compile(r",?\s+before\s+(?:you|we|i|\w+ing)\b")
_STOP = re.compile(r"[;!?\n]|\.(?!\w)|->|→|=>|\b(?:then|plus)\b")


def ending(masked: str, start: int, end: int, lexicon: Lexicon) -> int:
    """Where what is described from the start on ends; at the end at the latest."""
    for joint in _JOINT.finditer(masked, start + 1, end):
        after = joint.end()
        if _STOP.search(joint.group()) or after >= end:
            return joint.start()
        if _ELSE.match(masked, after, end) or lexicon.verb.match(masked, after, end):
            return joint.start()
        following = _JOINT.search(masked, after, end)
        last = following.start() if following else end
        if any(hit.weight >= CERTAIN for hit in lexicon.find(masked, after, last, None)):
            return joint.start()
    return end


def is_other(masked: str, start: int) -> bool:
    """Whether the words that begin there say something else."""
    return bool(_ELSE.match(masked, start))


def orders(masked: str, start: int, end: int, lexicon: Lexicon) -> Iterator[tuple[int, int]]:
    """Spans of successive orders, from the start."""
    while start < end:
        over = order_end(masked, start, end, lexicon)
        yield start, over
        joint = _JOINT.match(masked, over, end)
        start = joint.end() if joint else over + 1


def order_end(masked: str, start: int, end: int, lexicon: Lexicon) -> int:
    """Where an order that begins at the start ends because another follows; what it is about may be listed."""
    before = _BEFORE.search(masked, start + 1, end)
    end = before.start() if before else end
    for joint in _JOINT.finditer(masked, start + 1, end):
        after = joint.end()
        if ":" in joint.group():
            return end
        ordered = lexicon.verb.match(masked, after, end) and _OBJECT.match(masked, after, end)
        if "then" in joint.group() or ordered or _NEXT_ORDER.match(masked, after, end):
            return joint.start()
    return end
