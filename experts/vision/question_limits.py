"""Checks of the length of a question."""

from experts.torch_host.token_limits import MAX_CHARACTERS_PER_TOKEN
from services.common.errors import InvalidRequest


def check_characters(question: str, max_tokens: int, model_id: str) -> str:
    """Returns the question unless its characters alone show that it has more than max_tokens.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    if len(question) > max_tokens * MAX_CHARACTERS_PER_TOKEN:
        raise _too_large_error(f"{len(question)} characters", max_tokens, model_id)
    return question


def check_tokens(count: int, max_tokens: int, model_id: str) -> None:
    """Checks the number of tokens of a question.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    if count > max_tokens:
        raise _too_large_error(f"{count} tokens", max_tokens, model_id)


def _too_large_error(size: str, max_tokens: int, model_id: str) -> InvalidRequest:
    return InvalidRequest(
        f"the question has {size}; the limit of {model_id} is {max_tokens} tokens",
        port="question",
        reason="TOO_LARGE",
        remedy="ask a shorter question",
    )
