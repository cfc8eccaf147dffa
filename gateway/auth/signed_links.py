"""Signed artifact URLs, valid for a limited time without an API key, for browsers that display an answer."""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import parse_qs, urlencode

from starlette.types import Scope

from gateway.auth.identity import Identity, current
from gateway.limits.usage_counters import DAY
from services.common.database import Database, Query, Rows, Steps
from services.common.errors import Unauthenticated

_PATH = re.compile(r"/v1/artifacts/([0-9a-f]{64})")
_QUERY_FIELDS = ("tenant", "expires", "signature")
_MAX_QUERY_BYTES = 1_000

_ROW = "links"
_INSERT = "INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
_READ = "SELECT value FROM secrets WHERE name = ?"


LINK_KEY_ID = "link"
"""Key id of identities authenticated by a signed link."""


async def signing_secret(database: Database) -> bytes:
    """Returns the signing secret shared by all gateways on one database; the first gateway creates it."""

    def operation() -> Steps[Rows]:
        yield Query(_INSERT, (_ROW, secrets.token_bytes(32)))
        return (yield Query(_READ, (_ROW,)))

    ((secret,),) = await database.write(operation)
    return bytes(secret)


class LinkSigner:
    """Signs artifact URLs for the current tenant and verifies signed requests.

    Args:
        secret: from signing_secret; empty without authentication: URLs are not signed.
        seconds: lifetime after the end of the current day; within a day, an artifact's URL stays the same.
        clock: Unix time in seconds.
    """

    def __init__(self, secret: bytes = b"", seconds: int = 0, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._seconds = seconds
        self._clock = clock

    def path(self, sha256: str) -> str:
        """Returns the URL path of an artifact, signed if authentication is enabled."""
        path = f"/v1/artifacts/{sha256}"
        if not self._secret:
            return path
        tenant, day = current().tenant, -(-int(self._clock()) // DAY) * DAY
        expires = day + self._seconds
        signature = self._signature(sha256, tenant, expires)
        return f"{path}?{urlencode({'tenant': tenant, 'expires': expires, 'signature': signature})}"

    def authenticate(self, scope: Scope) -> Identity | None:
        """Returns the identity that a request's signature proves; None if the request has no signature.

        Raises:
            Unauthenticated: the signature is invalid or has expired.
        """
        found = _PATH.fullmatch(scope["path"])
        if not self._secret or not found or scope["method"] not in {"GET", "HEAD"}:
            return None
        sent = _signature_fields(scope["query_string"])
        if not sent:
            return None
        tenant, expires = sent["tenant"], sent["expires"]
        known = expires.isascii() and expires.isdecimal() and len(expires) < len(str(2**53))
        if not known or not hmac.compare_digest(
            self._signature(found[1], tenant, int(expires)).encode(), sent["signature"].encode()
        ):
            raise Unauthenticated(
                "invalid link: its signature does not match", remedy="request the answer again, or send an API key"
            )
        if int(expires) < self._clock():
            raise Unauthenticated("the link has expired", remedy="request the answer again, or send an API key")
        return Identity(tenant, LINK_KEY_ID)

    def _signature(self, sha256: str, tenant: str, expires: int) -> str:
        signed = f"{tenant}/{sha256}/{expires}".encode()
        return hmac.new(self._secret, signed, hashlib.sha256).hexdigest()


_current: ContextVar[LinkSigner] = ContextVar("links", default=LinkSigner())  # noqa: B039  # it never changes


@contextmanager
def use_link_signer(links: LinkSigner) -> Iterator[None]:
    """Uses the signer for links created within the block."""
    token = _current.set(links)
    try:
        yield
    finally:
        _current.reset(token)


def path(sha256: str) -> str:
    """Returns the URL path of an artifact for the caller and for browsers that display the answer."""
    return _current.get().path(sha256)


def _signature_fields(query: bytes) -> Mapping[str, str]:
    """Returns the signature's query parameters; empty if one is missing."""
    if b"signature=" not in query or len(query) > _MAX_QUERY_BYTES:
        return {}
    sent = parse_qs(query.decode("latin-1"))
    return {name: sent[name][0] for name in _QUERY_FIELDS} if all(name in sent for name in _QUERY_FIELDS) else {}
