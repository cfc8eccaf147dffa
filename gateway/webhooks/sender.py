"""One attempt to tell somebody something, through the guard that every URL goes through."""

import asyncio
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import Enum

import httpx

from gateway.webhooks.signature import signed
from services.common.errors import ServiceError
from services.common.http_fetch.ssrf_guard import GuardedTransport, HostNotFound, SsrfGuard

ATTEMPT_SECONDS = 15.0
"""For one attempt, until the answer's status."""

_HEADERS = {"content-type": "application/json", "user-agent": "hugginggpt"}


class End(Enum):
    """What became of an attempt."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """Worth another."""
    REFUSED = "refused"
    """Its address may not be reached, now or later."""
    WITHHELD = "withheld"
    """The data policy keeps it in."""
    GONE = "gone"
    """The receiver wants no more."""


@dataclass(frozen=True)
class Letter:
    """What is sent, and to whom."""

    id: str
    url: str = field(repr=False)
    secret: str = field(repr=False)
    payload: str


@dataclass(frozen=True)
class Outcome:
    end: End
    words: str
    after: float = 0.0
    """Seconds to wait at least, if the receiver says so."""


async def sent(letter: Letter, guard: SsrfGuard) -> Outcome:
    """Makes an attempt for the current caller; a redirect is not followed."""
    body = letter.payload.encode()
    headers = {**_HEADERS, **signed(letter.secret, letter.id, int(time.time()), body)}
    transport = GuardedTransport(guard.for_current_caller())
    try:
        async with (
            asyncio.timeout(ATTEMPT_SECONDS),
            httpx.AsyncClient(transport=transport, timeout=ATTEMPT_SECONDS, trust_env=False) as client,
            client.stream("POST", letter.url, content=body, headers=headers) as answer,
        ):
            return _read(answer)
    except ServiceError as error:
        return _refused(error)
    except (TimeoutError, httpx.TimeoutException):
        return Outcome(End.FAILED, f"no answer within {ATTEMPT_SECONDS:g} s")
    except httpx.ConnectError:
        return Outcome(End.FAILED, "it cannot be reached")
    except (httpx.HTTPError, httpx.InvalidURL):
        return Outcome(End.FAILED, "it broke off")


def _refused(error: ServiceError) -> Outcome:
    """An attempt that the guard stopped: only a name that has no address yet is worth another."""
    if isinstance(error, HostNotFound):
        return Outcome(End.FAILED, error.message)
    if error.reason == "POLICY":
        return Outcome(End.WITHHELD, error.message)
    return Outcome(End.REFUSED, f"{error.message}, and is not tried again")


def _read(answer: httpx.Response) -> Outcome:
    if answer.is_success:
        return Outcome(End.DELIVERED, f"answered {answer.status_code}")
    if answer.status_code == httpx.codes.GONE:
        return Outcome(End.GONE, "answered 410: it is gone for good")
    if answer.is_redirect:
        return Outcome(End.FAILED, f"answered {answer.status_code}, which leads elsewhere and is not followed")
    return Outcome(End.FAILED, f"answered {answer.status_code}", _seconds(answer.headers.get("retry-after", "")))


def _seconds(told: str) -> float:
    """Of a Retry-After header, either kind."""
    if told.isascii() and told.isdecimal():
        return float(told[:10])
    try:
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0
