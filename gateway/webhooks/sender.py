"""Sends webhook notifications, signed as specified by Standard Webhooks.

A signature is the HMAC-SHA256 of id, time and body with a shared secret.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import Enum

import httpx

from services.common.errors import ServiceError
from services.common.http_fetch.ssrf_guard import GuardedTransport, HostNotFound, SsrfGuard

PREFIX = "whsec_"

_SECRET_BYTES = 32

ATTEMPT_SECONDS = 15.0
"""Timeout of an attempt, until the response status."""

_HEADERS = {"content-type": "application/json", "user-agent": "hugginggpt"}


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature_headers(secret: str, message_id: str, at: int, body: bytes) -> Mapping[str, str]:
    """Returns the headers that authenticate a body.

    Args:
        secret: secret created by new_secret.
        message_id: id of the delivery, equal for all attempts.
        at: Unix time in seconds.
        body: body as sent.
    """
    content = f"{message_id}.{at}.".encode() + body
    digest = hmac.digest(base64.b64decode(secret.removeprefix(PREFIX)), content, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


class DeliveryStatus(Enum):
    """Result of an attempt."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """Failed; may be retried."""
    REFUSED = "refused"
    """Rejected by the guard; never retried."""
    WITHHELD = "withheld"
    """Not sent because of the data policy."""
    GONE = "gone"
    """The receiver answered 410 Gone."""


@dataclass(frozen=True)
class WebhookMessage:
    """A notification and its receiver."""

    id: str
    url: str = field(repr=False)
    secret: str = field(repr=False)
    payload: str


@dataclass(frozen=True)
class DeliveryOutcome:
    status: DeliveryStatus
    message: str
    retry_after: float = 0.0
    """Minimum seconds until the next attempt, as the receiver requests."""


async def send(message: WebhookMessage, guard: SsrfGuard) -> DeliveryOutcome:
    """Makes one attempt for the current caller; redirects are not followed."""
    body = message.payload.encode()
    headers = {**_HEADERS, **signature_headers(message.secret, message.id, int(time.time()), body)}
    transport = GuardedTransport(guard.for_current_caller())
    try:
        async with (
            asyncio.timeout(ATTEMPT_SECONDS),
            httpx.AsyncClient(transport=transport, timeout=ATTEMPT_SECONDS, trust_env=False) as client,
            client.stream("POST", message.url, content=body, headers=headers) as answer,
        ):
            return _read(answer)
    except ServiceError as error:
        return _refused(error)
    except (TimeoutError, httpx.TimeoutException):
        return DeliveryOutcome(DeliveryStatus.FAILED, f"no response within {ATTEMPT_SECONDS:g} s")
    except httpx.ConnectError:
        return DeliveryOutcome(DeliveryStatus.FAILED, "cannot connect to the receiver")
    except (httpx.HTTPError, httpx.InvalidURL):
        return DeliveryOutcome(DeliveryStatus.FAILED, "the connection was interrupted")


def _refused(error: ServiceError) -> DeliveryOutcome:
    """Outcome of an attempt that the guard rejected; only an unresolved host name is retried."""
    if isinstance(error, HostNotFound):
        return DeliveryOutcome(DeliveryStatus.FAILED, error.message)
    if error.reason == "POLICY":
        return DeliveryOutcome(DeliveryStatus.WITHHELD, error.message)
    return DeliveryOutcome(DeliveryStatus.REFUSED, f"{error.message}; not retried")


def _read(answer: httpx.Response) -> DeliveryOutcome:
    if answer.is_success:
        return DeliveryOutcome(DeliveryStatus.DELIVERED, f"answered {answer.status_code}")
    if answer.status_code == httpx.codes.GONE:
        return DeliveryOutcome(DeliveryStatus.GONE, "answered 410 Gone")
    if answer.is_redirect:
        return DeliveryOutcome(DeliveryStatus.FAILED, f"answered {answer.status_code}; redirects are not followed")
    return DeliveryOutcome(
        DeliveryStatus.FAILED, f"answered {answer.status_code}", _seconds(answer.headers.get("retry-after", ""))
    )


def _seconds(header: str) -> float:
    """Seconds of a Retry-After header, given as seconds or as a date."""
    if header.isascii() and header.isdecimal():
        return float(header[:10])
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0
