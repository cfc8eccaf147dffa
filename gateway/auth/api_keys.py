"""API keys: hgpt_{public id}_{secret}; only a digest of the secret is stored.

The secret has 256 random bits, so its SHA-256 cannot be reversed by guessing. A slow password hash would add no
security, but would let unauthenticated requests consume processor time.
"""

import hashlib
import hmac
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.auth.audit import Actor, audit_query
from gateway.auth.identity import Limits
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_UNSPECIFIED, DataPolicy
from services.common.call_context import is_valid_tenant
from services.common.database import Database, Query, Rows, Steps
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound, Unavailable

PREFIX = "hgpt_"

NAME_CHARACTERS = 100

_TOKEN = re.compile(r"hgpt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_COLUMNS = "id, digest, name, tenant, policy, admin, limits, created, expires, revoked"

FRESH_SECONDS = 2.0
"""Seconds a cached key is used without reading it again; a revocation takes effect after at most this time."""

STALE_SECONDS = 300.0
"""Seconds a cached key is used while the database is unavailable."""

MAX_KEYS = 10_000
"""Maximum number of cached keys."""


@dataclass(frozen=True)
class Terms:
    """Tenant, data policy, limits and expiry of a key."""

    tenant: str
    name: str = ""
    policy: "DataPolicy.ValueType" = DATA_POLICY_UNSPECIFIED
    admin: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    """Fields of Limits; missing fields take the gateway's defaults."""
    expires: float | None = None
    """Unix time in seconds; None: never."""


@dataclass(frozen=True)
class Key:
    """An API key without its secret."""

    id: str
    digest: bytes = field(repr=False)
    terms: Terms
    created: float
    revoked: float | None = None

    def matches(self, secret: str) -> bool:
        """Whether the secret belongs to this key; compares in constant time."""
        return hmac.compare_digest(self.digest, digest(secret))

    def state(self, now: float) -> str:
        """Returns "active", "expired" or "revoked"."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.terms.expires is not None and self.terms.expires <= now else "active"


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def parts(token: str) -> tuple[str, str] | None:
    """Splits a well-formed token into public id and secret; returns None for other texts."""
    found = _TOKEN.fullmatch(token)
    return (found[1], found[2]) if found else None


class Keys:
    """API keys in the database; every change is recorded in the audit log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, terms: Terms, by: Actor) -> tuple[Key, str]:
        """Creates a key and returns it with its full token, which is not stored.

        Raises:
            InvalidRequest: the name of the tenant or of the key is invalid.
        """
        _check(terms)
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)

        def operation() -> Steps[Rows]:
            insert = (
                f"INSERT INTO api_keys ({_COLUMNS}) "  # noqa: S608  # of constants
                f"VALUES (?, ?, ?, ?, ?, ?, ?, {self._database.dialect.now}, ?, NULL) RETURNING {_COLUMNS}"
            )
            rows = yield Query(insert, (key_id, digest(secret), *_values(terms), terms.expires))
            yield audit_query(self._database, by, "key.create", key_id, _audit_details(terms))
            return rows

        (row,) = await self._database.write(operation)
        return _key(row), f"{PREFIX}{key_id}_{secret}"

    async def list(self, tenant: str = "") -> Sequence[Key]:
        """Lists keys, oldest first; of all tenants if none is given."""
        select = f"SELECT {_COLUMNS} FROM api_keys WHERE ? IN ('', tenant) ORDER BY created, id"  # noqa: S608
        return [_key(row) for row in await self._database.read(select, tenant)]

    async def find(self, key_id: str) -> Key | None:
        rows = await self._database.read(f"SELECT {_COLUMNS} FROM api_keys WHERE id = ?", key_id)  # noqa: S608
        return _key(rows[0]) if rows else None

    async def change(self, key_id: str, change: Mapping[str, Any], by: Actor) -> Key:
        """Changes a key's terms; limits that are not named stay.

        Args:
            key_id: the public id.
            change: fields of Terms to replace.
            by: actor for the audit log.

        Raises:
            NotFound: KEY.
            FailedPrecondition: REVOKED.
            InvalidRequest: a name is invalid.
        """

        def operation() -> Steps[Key]:
            key = yield from self._unrevoked(key_id)
            limits = {**key.terms.limits, **change.get("limits", {})}
            terms = replace(key.terms, **{**change, "limits": limits})
            _check(terms)
            settings = "name = ?, tenant = ?, policy = ?, admin = ?, limits = ?, expires = ?"
            update = f"UPDATE api_keys SET {settings} WHERE id = ?"  # noqa: S608
            yield Query(update, (*_values(terms), terms.expires, key_id))
            yield audit_query(self._database, by, "key.change", key_id, _audit_details(terms))
            return replace(key, terms=terms)

        return await self._database.write(operation)

    async def revoke(self, key_id: str, by: Actor) -> None:
        """Revokes a key; gateways refuse it after at most two seconds.

        Raises:
            NotFound: KEY.
            FailedPrecondition: REVOKED, it is revoked already.
        """

        def operation() -> Steps[None]:
            yield from self._unrevoked(key_id)
            now = self._database.dialect.now
            yield Query(f"UPDATE api_keys SET revoked = {now} WHERE id = ?", (key_id,))  # noqa: S608
            yield audit_query(self._database, by, "key.revoke", key_id, {})

        await self._database.write(operation)

    def _unrevoked(self, key_id: str) -> Steps[Key]:
        yield Query(self._database.dialect.lock, (f"key {key_id}",))
        rows = yield Query(f"SELECT {_COLUMNS} FROM api_keys WHERE id = ?", (key_id,))  # noqa: S608
        if not rows:
            raise NotFound(
                f"there is no API key {key_id[:40]}", reason="KEY", remedy="list the keys with hugginggpt keys list"
            )
        key = _key(rows[0])
        if key.revoked is not None:
            raise FailedPrecondition(
                f"the API key {key_id} has been revoked", reason="REVOKED", remedy="create another key"
            )
        return key


def _check(terms: Terms) -> None:
    if not is_valid_tenant(terms.tenant):
        remedy = "use up to 63 lower-case letters, digits and hyphens, starting with a letter or digit"
        raise InvalidRequest(f"invalid tenant name {terms.tenant[:100]!r}", remedy=remedy, port="tenant")
    if len(terms.name) > NAME_CHARACTERS or not terms.name.isprintable():
        remedy = f"use up to {NAME_CHARACTERS} printable characters"
        raise InvalidRequest("invalid key name", remedy=remedy, port="name")
    Limits(**terms.limits)


def _values(terms: Terms) -> tuple[Any, ...]:
    limits = json.dumps(dict(terms.limits), sort_keys=True)
    return terms.name, terms.tenant, terms.policy, int(terms.admin), limits


def _audit_details(terms: Terms) -> dict[str, Any]:
    """Details of a key for the audit log."""
    return {
        "name": terms.name,
        "tenant": terms.tenant,
        "policy": DataPolicy.Name(terms.policy).removeprefix("DATA_POLICY_").lower(),
        "admin": terms.admin,
        "limits": dict(terms.limits),
        "expires": terms.expires,
    }


def _key(row: Sequence[Any]) -> Key:
    key_id, secret_digest, name, tenant, policy, admin, limits, created, expires, revoked = row
    terms = Terms(tenant, name, policy, bool(admin), json.loads(limits), expires)
    return Key(key_id, secret_digest, terms, created, revoked)


class ApiKeyCache:
    """Reads API keys on demand and caches them for a short time."""

    def __init__(self, keys: Keys, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, Key | None]] = OrderedDict()

    async def find(self, key_id: str) -> Key | None:
        """Returns the key with the public id, or None.

        Raises:
            Unavailable: the database is unavailable and the key is not cached.
        """
        read, key = self._entries.get(key_id, (None, None))
        if read is not None and self._clock() - read < FRESH_SECONDS:
            return key
        try:
            key = await self._keys.find(key_id)
        except Unavailable:
            if read is None or self._clock() - read >= STALE_SECONDS:
                raise
            return key
        self._store(key_id, key)
        return key

    def _store(self, key_id: str, key: Key | None) -> None:
        self._entries[key_id] = (self._clock(), key)
        self._entries.move_to_end(key_id)
        if len(self._entries) > MAX_KEYS:
            self._entries.popitem(last=False)
