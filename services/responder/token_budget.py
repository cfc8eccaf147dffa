"""Texts within a budget of tokens: who gets how much of it, and what is left out of whom."""

from collections.abc import Callable, Sequence

from services.responder.escape import shortened

Count = Callable[[str], int]
"""Tokens of a text."""

_LONGEST_TOKEN = 8
"""Characters per token beyond which no text goes: what is certainly too long is not counted."""
_SLACK = 0.95


def within(text: str, tokens: int, count: Count) -> str:
    """The text, its middle left out if it takes more than that; with no tokens to spend, nothing."""
    room = tokens * _LONGEST_TOKEN
    fit = shortened(text, room) if room > 0 else ""
    while fit and (taken := count(fit)) > tokens:
        room = int(min(room, len(text)) * tokens / taken * _SLACK)
        fit = shortened(text, room) if room > 0 else ""
    return fit


def shares(needed: Sequence[int], weights: Sequence[float], budget: int) -> list[int]:
    """How much of the budget each gets: no more than it needs, and what one leaves goes to the others by weight."""
    given, left, weight = [0] * len(needed), budget, sum(weights)
    for place in sorted(range(len(needed)), key=lambda place: needed[place] / weights[place]):
        given[place] = min(needed[place], int(left * weights[place] / max(weight, weights[place])))
        left -= given[place]
        weight -= weights[place]
    return given
