"""Page sizes and page tokens of lists."""

import math
from collections.abc import Iterable
from fractions import Fraction

from google.protobuf.timestamp_pb2 import Timestamp

from protos.hugginggpt.v1.run_pb2 import RunState
from services.common.errors import InvalidRequest

PAGE_SIZE = 50
MAX_PAGE_SIZE = 1_000


def page_size(requested: int) -> int:
    """Number of rows of a page; 0 requests the default.

    Raises:
        InvalidRequest: the number is negative.
    """
    if requested < 0:
        raise InvalidRequest("page_size is negative", port="page_size", remedy="send 0 for the default")
    return min(requested or PAGE_SIZE, MAX_PAGE_SIZE)


def page_token(seconds: float, id_: str) -> str:
    """The token of the page after the row with this time and ID."""
    return f"{seconds!r},{id_}"


def parse_page_token(token: str) -> tuple[float, str] | None:
    """The (time, ID) after which a page begins; None for the first page.

    Raises:
        InvalidRequest: the token was not made by page_token().
    """
    if not token:
        return None
    seconds, _, id_ = token.partition(",")
    try:
        return float(seconds), id_
    except ValueError:
        raise _invalid_token() from None


def parse_index_token(token: str) -> int:
    """Index of the last item of the page before; 0 for the first page.

    Raises:
        InvalidRequest: the token is not a decimal index.
    """
    if token and not (token.isascii() and token.isdecimal() and len(token) < 10):  # noqa: PLR2004  # int32
        raise _invalid_token()
    return int(token or 0)


def _invalid_token() -> InvalidRequest:
    remedy = "send next_page_token of the previous page unchanged"
    return InvalidRequest("the page token is invalid", port="page_token", remedy=remedy)


def states_filter(states: "Iterable[RunState.ValueType]") -> "list[RunState.ValueType]":
    """The distinct states by which a list is filtered.

    Raises:
        InvalidRequest: a number is no state.
    """
    distinct = set(states)
    if unknown := distinct - set(RunState.values()):
        raise InvalidRequest(f"{min(unknown)} is no run state", port="states", remedy="see the enum RunState")
    return sorted(distinct)


def to_timestamp(seconds: float) -> Timestamp:
    """Converts seconds since the epoch, rounded down to microseconds: a list that starts there must include the row."""
    result = Timestamp()
    result.FromMicroseconds(math.floor(Fraction(seconds) * 1_000_000))
    return result


def to_seconds(timestamp: Timestamp, port: str) -> float:
    """Seconds since the epoch; 0 for an empty timestamp.

    Raises:
        InvalidRequest: it is outside the years 1 to 9999.
    """
    try:
        return timestamp.ToMicroseconds() / 1e6
    except ValueError:
        raise InvalidRequest(
            f"{port} is no valid time", port=port, remedy="send a time in the years 1 to 9999"
        ) from None
