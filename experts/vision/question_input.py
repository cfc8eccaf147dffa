"""Questions, none longer than a model reads."""

from services.common.errors import InvalidRequest

_CHARACTERS_PER_TOKEN = 24
"""More than any prose has: what is longer than that is refused before it is read."""


def short(question: str, longest: int, model_id: str) -> str:
    """The question, if it may have no more than so many tokens.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    if len(question) > longest * _CHARACTERS_PER_TOKEN:
        raise _too_long(f"{len(question)} characters", longest, model_id)
    return question


def check_count(count: int, longest: int, model_id: str) -> None:
    """Complains of a question with more tokens than are read.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    if count > longest:
        raise _too_long(f"{count} tokens", longest, model_id)


def _too_long(has: str, longest: int, model_id: str) -> InvalidRequest:
    return InvalidRequest(
        f"the question has {has}, {model_id} takes {longest} tokens",
        port="question",
        reason="TOO_LARGE",
        remedy="ask a shorter question",
    )
