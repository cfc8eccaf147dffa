"""Splits Whisper's output at its timestamp tokens: <0.00> text <1.52><1.52> text <3.10>."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

_TICK_SECONDS = 0.02
_MIN_ADVANCE = 1.0
"""Minimum seconds from the start of a window to that of the next one, whatever the model returns."""


@dataclass(frozen=True)
class SpecialTokens:
    """Tokens that are not text."""

    first_timestamp: int
    """Token of 0.00; this and all later tokens are timestamps."""
    end: int
    others: Collection[int]


@dataclass
class Segment:
    """Speech between two timestamps of a window."""

    start: float
    end: float
    tokens: list[int] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    """Logarithms of the tokens' probabilities."""


def split_segments(
    tokens: Sequence[int], logs: Sequence[float], special_tokens: SpecialTokens, seconds: float, *, is_last: bool
) -> tuple[list[Segment], float]:
    """Splits the tokens of a window into segments; returns them with the start of the next window, in seconds.

    A segment without an end timestamp is left to the next window, unless this window has no other.

    Args:
        tokens: tokens of the window.
        logs: logarithms of their probabilities.
        special_tokens: tokens that are not text.
        seconds: length of the window.
        is_last: whether the recording ends with this window.
    """
    closed, current, is_segment_opened = list[Segment](), Segment(0.0, seconds), False
    for token, log in zip(tokens, logs, strict=True):
        if token == special_tokens.end:
            break
        if token >= special_tokens.first_timestamp:
            time = min((token - special_tokens.first_timestamp) * _TICK_SECONDS, seconds)
            is_segment_opened = not current.tokens
            if current.tokens:
                current.end = max(current.start, time)
                closed.append(current)
            current = Segment(time, seconds)
        elif token not in special_tokens.others:
            current.tokens.append(token)
            current.logs.append(log)
    last_end = closed[-1].end if closed else 0.0
    is_open = bool(current.tokens) or (is_segment_opened and not is_last)
    if is_open and _MIN_ADVANCE <= last_end < seconds:
        return closed, last_end
    return ([*closed, current] if current.tokens else closed), seconds
