"""Text with times in it, as Whisper writes it: <0.00> text <1.52><1.52> text <3.10>."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

_TICK = 0.02
_LEAST = 1.0
"""Seconds that each window advances at least, whatever the model says."""


@dataclass(frozen=True)
class Marks:
    """Which tokens are no text."""

    first_time: int
    """The token of 0.00; all from here on are times."""
    end: int
    others: Collection[int]


@dataclass
class Segment:
    """What is said between two times of a window."""

    start: float
    end: float
    tokens: list[int] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    """The logarithms of their probabilities."""


def segments(
    tokens: Sequence[int], logs: Sequence[float], marks: Marks, seconds: float, *, is_last: bool
) -> tuple[list[Segment], float]:
    """What is said in a window of so many seconds, and where the next one begins.

    What has begun and not ended is left for the next window, unless there would be nothing else in this one.
    """
    closed, current, was_time = list[Segment](), Segment(0.0, seconds), False
    for token, log in zip(tokens, logs, strict=True):
        if token == marks.end:
            break
        if token >= marks.first_time:
            time = min((token - marks.first_time) * _TICK, seconds)
            was_time = not current.tokens
            if current.tokens:
                current.end = max(current.start, time)
                closed.append(current)
            current = Segment(time, seconds)
        elif token not in marks.others:
            current.tokens.append(token)
            current.logs.append(log)
    upto = closed[-1].end if closed else 0.0
    goes_on = bool(current.tokens) or (was_time and not is_last)
    if goes_on and _LEAST <= upto < seconds:
        return closed, upto
    return ([*closed, current] if current.tokens else closed), seconds
