"""Why an endpoint gave no usable answer."""

from enum import Enum


class Why(Enum):
    """What stood in the way."""

    POLICY = "policy"
    """The request's data may not leave the house, and the endpoint is outside."""
    DOWN = "down"
    SLOW = "slow"
    RATE_LIMITED = "rate limited"
    REFUSED = "refused"
    """It will not answer this, however often it is asked: key, model name, a prompt too long."""
    BROKEN = "broken"
    """Its answer was cut off or is not of the protocol."""
    OPEN = "open"
    """It failed several times in a row and is left alone for a while."""


class Unusable(Exception):
    """No answer came of a call; message and remedy hold no content and no secret.

    Args:
        why: in a word.
        message: a sentence.
        remedy: what whoever runs the house can do.
        again: the same request may do better in a moment.
        after: seconds the endpoint asks to wait before that.
        blames: it tells against the endpoint, not against this one request.
    """

    def __init__(
        self, why: Why, message: str, *, remedy: str = "", again: bool = False, after: float = 0.0, blames: bool = True
    ) -> None:
        super().__init__(message)
        self.why = why
        self.remedy = remedy
        self.again = again
        self.after = after
        self.blames = blames
