"""What can go wrong, each with what helps.

HuggingGPTError
├─ Unreachable          nobody answers, or no longer
├─ NoGateway            what answers is something else
├─ Damaged              bytes that are not those of their digest
└─ Refused              the gateway says no
   ├─ InvalidRequest    asked wrongly; also found before anything was sent
   ├─ Unauthenticated   no key, or none it knows
   ├─ Forbidden         not with this key
   ├─ NotFound          there is no such thing, for this key
   ├─ Conflict          not in its present state
   ├─ RateLimited       too much at once; retry_after says when again
   └─ ServerError       something broke or is not there now
"""

import ssl
from collections.abc import Mapping
from typing import Any

import httpx

_SERVER_ERROR = 500


class HuggingGPTError(Exception):
    """Names the cause and the remedy; code is stable, upper case."""

    def __init__(self, message: str, *, code: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class Unreachable(HuggingGPTError):
    """Nobody answers at the gateway's address, or no longer."""


class NoGateway(HuggingGPTError):
    """What answers is no gateway."""


class Damaged(HuggingGPTError):
    """What arrived is not what its digest says."""


class Refused(HuggingGPTError):
    """The gateway says no.

    Attributes:
        status: HTTP's; 0 if nothing was sent.
        retry_after: seconds after which it may be otherwise; None if nobody said.
        request_id: by which the operator finds it in the log.
        port: field or input that was refused; empty if it is none in particular.
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
    """Asked wrongly."""


class Unauthenticated(Refused):
    """There is no key, or none that the gateway knows."""


class Forbidden(Refused):
    """Not with this key."""


class NotFound(Refused):
    """There is no such thing, or it is somebody else's."""


class Conflict(Refused):
    """Not in its present state."""


class RateLimited(Refused):
    """Too much at once."""


class ServerError(Refused):
    """Something broke, or is not there now."""


_KINDS: Mapping[int, type[Refused]] = {
    **dict.fromkeys((400, 413, 415, 416, 422), InvalidRequest),
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
}


def refusal(reply: httpx.Response, problem: Mapping[str, Any] | None = None) -> Refused:
    """A reply that says no, or the problem in one, as an error."""
    told = _content(reply) if problem is None else problem
    status = int(told.get("status") or reply.status_code)
    kind = _KINDS.get(status, ServerError if status >= _SERVER_ERROR else Refused)
    return kind(
        told.get("detail") or f"the gateway says {reply.status_code} {reply.reason_phrase}",
        code=told.get("code") or f"HTTP_{status}",
        remedy=told.get("remedy") or "",
        status=status,
        retry_after=_seconds(reply.headers.get("retry-after", "")),
        request_id=reply.headers.get("x-request-id", ""),
        port=_field(told),
    )


def unreachable(url: str, error: BaseException | None) -> Unreachable:
    """Nobody is there, or somebody with whom no TLS connection comes about."""
    if error is None:
        return Unreachable(f"no gateway answers at {url}", code="UNREACHABLE", remedy="start one: hugginggpt up")
    if not isinstance(error, ssl.SSLError):
        return unreachable(url, error.__cause__ or error.__context__)
    why = getattr(error, "verify_message", "") or error.reason or "the handshake failed"
    remedy = "name its authority's certificate in SSL_CERT_FILE; a gateway without TLS has an address with http://"
    return Unreachable(f"no TLS connection to {url}: {why}", code="UNREACHABLE", remedy=remedy)


def _content(reply: httpx.Response) -> Mapping[str, Any]:
    try:
        content = reply.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _field(problem: Mapping[str, Any]) -> str:
    error = problem.get("error")
    return str(error.get("param") or "") if isinstance(error, dict) else ""


def _seconds(told: str) -> float | None:
    return float(told) if told.isascii() and told.isdecimal() else None
