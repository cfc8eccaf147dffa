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
    """No answer came of a call; message and remedy hold no content and no secret."""

    def __init__(self, why: Why, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.why = why
        self.remedy = remedy
