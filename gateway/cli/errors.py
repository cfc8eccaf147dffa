"""Errors of the command line, with remedies in its terms.

The gateway's own remedies address clients of its APIs: they may name routes and fields.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.client import HuggingGPTError

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit statuses: failure, invalid arguments, Ctrl-C."""

_BY_CODE: Mapping[str, str] = {
    "BATCH": "check the id: hugginggpt batches lists them",
    "EXPERT": "check the name: hugginggpt experts lists them",
    "FILE": "check the id; the file may have been deleted",
    "PIPELINE": "check the name: hugginggpt pipelines lists them",
    "RUN": "check the id: hugginggpt runs lists them",
}
_BY_FIELD: Mapping[str, str] = {
    "page_token": "pass the token of the previous page to --page, or leave --page out",
}
_IF_ROUTED: Mapping[str, str] = {
    "UNAVAILABLE": "check with hugginggpt doctor, then try again",
    "UNREACHABLE": "started runs continue: follow them with hugginggpt watch when the gateway is reachable again",
}
"""For codes with several causes: used only if the gateway's remedy names a route."""

_DEFAULT = "see hugginggpt --help, or --help of the command"

_ROUTE = re.compile(r"\b(GET|HEAD|POST|PUT|PATCH|DELETE) /|/v1/|/readyz|/docs\b")


class Problem(Exception):
    """An expected failure: message, remedy, and exit status of the command."""

    def __init__(self, message: str, *, remedy: str = "", status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.status = status

    @classmethod
    def of(cls, error: "HuggingGPTError") -> "Problem":
        """Converts an error of the client; adds the exit status and a remedy for the command line."""
        from gateway.client import InvalidRequest

        return cls(error.message, remedy=remedy(error), status=USAGE if isinstance(error, InvalidRequest) else FAILED)


def remedy(error: "HuggingGPTError") -> str:
    """Remedy of an error for users of the command line."""
    from gateway.client import RateLimited, Refused

    is_local = isinstance(error, Refused) and not error.status
    if isinstance(error, RateLimited) and error.retry_after is not None:
        return f"try again in {error.retry_after:g} s"
    if isinstance(error, Refused) and error.port in _BY_FIELD:
        return _BY_FIELD[error.port]
    if error.code in _BY_CODE and not is_local:
        return _BY_CODE[error.code]
    return _IF_ROUTED.get(error.code, _DEFAULT) if _ROUTE.search(error.remedy) else error.remedy
