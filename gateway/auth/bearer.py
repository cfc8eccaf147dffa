"""Bearer tokens in the Authorization header of HTTP requests and in gRPC metadata."""

import re

from services.common.errors import Unauthenticated

_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,8192})", re.IGNORECASE)


def token(authorization: str) -> str:
    """Extracts the token; returns an empty string if the header is absent.

    Raises:
        Unauthenticated: the header contains no bearer token.
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
