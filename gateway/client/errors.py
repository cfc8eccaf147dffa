"""Errors of the client, each with a remedy.

HuggingGPTError
├─ Unreachable          no connection, or a lost one
├─ NoGateway            the server is not a gateway
├─ Damaged              bytes do not match their digest
└─ Refused              the gateway returned an error
   ├─ InvalidRequest    invalid request; also raised before anything is sent
   ├─ Unauthenticated   missing or unknown API key
   ├─ Forbidden         the key lacks the permission
   ├─ NotFound          not found, or owned by another tenant
   ├─ Conflict          not possible in the present state
   ├─ RateLimited       a limit is exceeded; see retry_after
   └─ ServerError       failure or unavailability of the gateway
"""

import ssl
from collections.abc import Mapping
from typing import Any

import httpx

_SERVER_ERROR = 500


class HuggingGPTError(Exception):
    """Base class: cause, remedy, and a stable upper-case code."""

    def __init__(self, message: str, *, code: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class Unreachable(HuggingGPTError):
    """The gateway cannot be reached, or the connection was lost."""


class NoGateway(HuggingGPTError):
    """The server is not a HuggingGPT gateway."""


class Damaged(HuggingGPTError):
    """Received bytes do not match their digest."""


class Refused(HuggingGPTError):
    """The gateway returned an error.

    Attributes:
        status: HTTP status; 0 if nothing was sent.
        retry_after: seconds after which to retry; None if unknown.
        request_id: id of the request in the gateway's log.
        port: invalid field or input; empty if there is none.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        remedy: str = "",
        status: int = 0,
        retry_after: float | None = None,
        request_id: str = "",
        port: str = "",
    ) -> None:
        super().__init__(message, code=code, remedy=remedy)
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id
        self.port = port


class InvalidRequest(Refused):
    """The request is invalid."""


class Unauthenticated(Refused):
    """The API key is missing or unknown."""


class Forbidden(Refused):
    """The API key lacks the permission."""


class NotFound(Refused):
    """The object does not exist, or belongs to another tenant."""


class Conflict(Refused):
    """The object's present state does not allow the call."""


class RateLimited(Refused):
    """A rate limit or quota is exceeded."""


class ServerError(Refused):
    """The gateway failed or is unavailable."""


_KINDS: Mapping[int, type[Refused]] = {
    **dict.fromkeys((400, 413, 415, 416, 422), InvalidRequest),
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
}


def refusal(reply: httpx.Response, problem: Mapping[str, Any] | None = None) -> Refused:
    """Converts an error reply, or a problem event of a stream, to an error."""
    content = _content(reply) if problem is None else problem
    status = int(content.get("status") or reply.status_code)
    kind = _KINDS.get(status, ServerError if status >= _SERVER_ERROR else Refused)
    return kind(
        content.get("detail") or f"the gateway returned {reply.status_code} {reply.reason_phrase}",
        code=content.get("code") or f"HTTP_{status}",
        remedy=content.get("remedy") or "",
        status=status,
        retry_after=_seconds(reply.headers.get("retry-after", "")),
        request_id=reply.headers.get("x-request-id", ""),
        port=_field(content),
    )


def unreachable(url: str, error: BaseException | None) -> Unreachable:
    """Builds the error of a failed connection, from its cause."""
    if error is None:
        return Unreachable(
            f"cannot connect to a gateway at {url}", code="UNREACHABLE", remedy="start one: hugginggpt up"
        )
    if not isinstance(error, ssl.SSLError):
        return unreachable(url, error.__cause__ or error.__context__)
    reason = getattr(error, "verify_message", "") or error.reason or "the handshake failed"
    remedy = "set SSL_CERT_FILE to the certificate of its authority; use http:// for a gateway without TLS"
    return Unreachable(f"no TLS connection to {url}: {reason}", code="UNREACHABLE", remedy=remedy)


def _content(reply: httpx.Response) -> Mapping[str, Any]:
    try:
        content = reply.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _field(problem: Mapping[str, Any]) -> str:
    error = problem.get("error")
    return str(error.get("param") or "") if isinstance(error, dict) else ""


def _seconds(content: str) -> float | None:
    return float(content) if content.isascii() and content.isdecimal() else None
