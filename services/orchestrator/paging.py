"""Pages of lists: how long they are, and where the next one begins."""

import math
from collections.abc import Iterable
from fractions import Fraction

from google.protobuf.timestamp_pb2 import Timestamp

from protos.hugginggpt.v1.run_pb2 import RunState
from services.common.errors import InvalidRequest

PAGE_SIZE = 50
LARGEST_PAGE = 1_000


def page_size(asked: int) -> int:
    """Rows of a page.

    Raises:
        InvalidRequest: a negative number is asked for.
    """
    if asked < 0:
        raise InvalidRequest("page_size is negative", port="page_size", remedy="send 0 for the usual size")
    return min(asked or PAGE_SIZE, LARGEST_PAGE)


def token(moment: float, id_: str) -> str:
    """Says behind which row the next page begins."""
    return f"{moment!r},{id_}"


def position(token: str) -> tuple[float, str] | None:
    """Behind which (moment, id) a page begins; None for the first.

    Raises:
        InvalidRequest: the token is none of token()'s.
    """
    if not token:
        return None
    moment, _, id_ = token.partition(",")
    try:
        return float(moment), id_
    except ValueError:
        raise _invalid_token() from None


def index(token: str) -> int:
    """Index of the last item of the page before; 0 for the first page.

    Raises:
        InvalidRequest: the token is not a decimal index.
    """
    if token and not (token.isascii() and token.isdecimal() and len(token) < 10):  # noqa: PLR2004  # int32
        raise _invalid_token()
    return int(token or 0)


def _invalid_token() -> InvalidRequest:
    return InvalidRequest(
        "the page token is not one of ours", port="page_token", remedy="use next_page_token as it was given"
    )


def wanted(states: "Iterable[RunState.ValueType]") -> "list[RunState.ValueType]":
    """States by which a list is filtered, each once.

    Raises:
        InvalidRequest: one is none.
    """
    asked = set(states)
    if strange := asked - set(RunState.values()):
        raise InvalidRequest(f"{min(strange)} is no state", port="states", remedy="see the proto's enum")
    return sorted(asked)


def timestamp(seconds: float) -> Timestamp:
    """Tells a moment in whole microseconds: never later than it, or who asks for what came since then misses it."""
    told = Timestamp()
    told.FromMicroseconds(math.floor(Fraction(seconds) * 1_000_000))
    return told


def moment(timestamp: Timestamp, port: str) -> float:
    """Seconds since the epoch; 0 if none is given.

    Raises:
        InvalidRequest: it is none between the years 1 and 9999.
    """
    try:
        return timestamp.ToMicroseconds() / 1e6
    except ValueError:
        raise InvalidRequest(f"{port} is no time", port=port, remedy="send one of the years 1 to 9999") from None
