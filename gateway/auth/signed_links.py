"""Addresses of artifacts that open without a key, for a while: in answers that a browser shows, which sends none."""

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
from gateway.limits.rate_window import DAY
from services.common.database import Database, Query, Rows, Steps
from services.common.errors import Unauthenticated

_PATH = re.compile(r"/v1/artifacts/([0-9a-f]{64})")
_SIGNED = ("tenant", "expires", "signature")
_MOST_QUERY = 1_000

_NAMED = "links"
_MAKE = "INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
_READ = "SELECT value FROM secrets WHERE name = ?"


HOLDER = "link"
"""Stands as the key of whoever shows a signature."""


async def signing_secret(database: Database) -> bytes:
    """What all gateways on one database sign with; made by the first."""

    def operation() -> Steps[Rows]:
        yield Query(_MAKE, (_NAMED, secrets.token_bytes(32)))
        return (yield Query(_READ, (_NAMED,)))

    ((secret,),) = await database.write(operation)
    return bytes(secret)


class Links:
    """Signs addresses for the current identity's tenant, and knows them again.

    Args:
        secret: from signing_secret; empty where nobody needs a key, and so no signature.
        seconds: how long a signature is good after the end of the day; all that day an artifact has the same address.
    """

    def __init__(self, secret: bytes = b"", seconds: int = 0, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._seconds = seconds
        self._clock = clock

    def path(self, sha256: str) -> str:
        """Where an artifact is fetched, on this site."""
        path = f"/v1/artifacts/{sha256}"
        if not self._secret:
            return path
        tenant, day = current().tenant, -(-int(self._clock()) // DAY) * DAY
        expires = day + self._seconds
        signature = self._signature(sha256, tenant, expires)
        return f"{path}?{urlencode({'tenant': tenant, 'expires': expires, 'signature': signature})}"

    def holder(self, scope: Scope) -> Identity | None:
        """Who a request stands for that carries a signature; None if it carries none.

        Raises:
            Unauthenticated: it is not one of this house, or no longer good.
        """
        found = _PATH.fullmatch(scope["path"])
        if not self._secret or not found or scope["method"] not in {"GET", "HEAD"}:
            return None
        sent = _sent(scope["query_string"])
        if not sent:
            return None
        tenant, expires = sent["tenant"], sent["expires"]
        known = expires.isascii() and expires.isdecimal() and len(expires) < len(str(2**53))
        if not known or not hmac.compare_digest(
            self._signature(found[1], tenant, int(expires)).encode(), sent["signature"].encode()
        ):
            raise Unauthenticated("the address was changed", remedy="ask for the answer again, or send a key")
        if int(expires) < self._clock():
            raise Unauthenticated("the address is no longer good", remedy="ask for the answer again, or send a key")
        return Identity(tenant, HOLDER)

    def _signature(self, sha256: str, tenant: str, expires: int) -> str:
        signed = f"{tenant}/{sha256}/{expires}".encode()
        return hmac.new(self._secret, signed, hashlib.sha256).hexdigest()


_current: ContextVar[Links] = ContextVar("links", default=Links())  # noqa: B039  # it never changes


@contextmanager
def signing_with(links: Links) -> Iterator[None]:
    """Signs by these within the block."""
    token = _current.set(links)
    try:
        yield
    finally:
        _current.reset(token)


def path(sha256: str) -> str:
    """Where whoever is being served, and a browser it shows the answer to, fetches an artifact on this site."""
    return _current.get().path(sha256)


def _sent(query: bytes) -> Mapping[str, str]:
    """The parts of a signature, if all are there."""
    if b"signature=" not in query or len(query) > _MOST_QUERY:
        return {}
    sent = parse_qs(query.decode("latin-1"))
    return {name: sent[name][0] for name in _SIGNED} if all(name in sent for name in _SIGNED) else {}
