"""Tokens as they are sent: Authorization: Bearer, over HTTP and as gRPC metadata."""

import re

from services.common.errors import Unauthenticated

_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,8192})", re.IGNORECASE)


def token(authorization: str) -> str:
    """What the header carries; empty if it was not sent.

    Raises:
        Unauthenticated: it carries something else.
    """
    if not authorization:
        return ""
    found = _BEARER.fullmatch(authorization.strip())
    if not found:
        raise Unauthenticated(
            "the Authorization header carries no bearer token",
            remedy="send Authorization: Bearer, a space, and the key",
        )
    return found[1]
