"""Truncates texts to token limits and divides a token budget."""

from collections.abc import Callable, Sequence

from services.responder.escape import shorten

TokenCounter = Callable[[str], int]
"""Counts the tokens of a text."""

_LONGEST_TOKEN = 8
"""Upper bound of characters per token; texts longer than the limit allows are cut before they are counted."""
_SLACK = 0.95


def truncate_to_tokens(text: str, tokens: int, count: TokenCounter) -> str:
    """Returns the text, without its middle if it exceeds the limit; empty if the limit is not positive."""
    characters = tokens * _LONGEST_TOKEN
    fit = shorten(text, characters) if characters > 0 else ""
    while fit and (used := count(fit)) > tokens:
        characters = int(min(characters, len(text)) * tokens / used * _SLACK)
        fit = shorten(text, characters) if characters > 0 else ""
    return fit


def split_budget(needed: Sequence[int], weights: Sequence[float], budget: int) -> list[int]:
    """Divides a budget by weight; what one item does not need goes to the others."""
    shares, remaining, weight = [0] * len(needed), budget, sum(weights)
    for index in sorted(range(len(needed)), key=lambda index: needed[index] / weights[index]):
        shares[index] = min(needed[index], int(remaining * weights[index] / max(weight, weights[index])))
        remaining -= shares[index]
        weight -= weights[index]
    return shares
