"""Remedies for errors of the gateway, in terms of the command line.

The gateway's own remedies are for clients of its APIs: they may name routes and fields.
"""

import re
from collections.abc import Mapping

from gateway.client.errors import HuggingGPTError, RateLimited, Refused

_BY_CODE: Mapping[str, str] = {
    "BATCH": "check the id: hugginggpt batches lists them",
    "EXPERT": "check the name: hugginggpt experts lists them",
    "FILE": "check the id; the file may have been deleted",
    "PIPELINE": "check the name: hugginggpt pipelines lists them",
    "RUN": "check the id: hugginggpt runs lists them",
}
_BY_FIELD: Mapping[str, str] = {
    "page_token": "give --page what the list before ended with, or nothing to begin anew",
}
_IF_ROUTED: Mapping[str, str] = {
    "UNAVAILABLE": "hugginggpt doctor looks for what is wrong; then try again",
    "UNREACHABLE": "what was started goes on: follow it with hugginggpt watch once a gateway answers again",
}
"""For codes of several causes: only where the gateway's remedy would name a route."""

_OTHERWISE = "hugginggpt --help lists the commands, and each has a --help of its own"

_ROUTE = re.compile(r"\b(GET|HEAD|POST|PUT|PATCH|DELETE) /|/v1/|/readyz|/docs\b")


def remedy(error: HuggingGPTError) -> str:
    """What a user of the command line can do about an error."""
    if isinstance(error, RateLimited) and error.retry_after is not None:
        return f"try again in {error.retry_after:g} s"
    if isinstance(error, Refused) and error.port in _BY_FIELD:
        return _BY_FIELD[error.port]
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    return _IF_ROUTED.get(error.code, _OTHERWISE) if _ROUTE.search(error.remedy) else error.remedy
