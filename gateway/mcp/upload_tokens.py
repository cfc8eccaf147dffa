"""Single-use tokens for uploading one file without an API key within a short time.

They are stored in the gateway's database, so that any gateway replica accepts a token, and only once.
"""

import hashlib
import secrets
import time
from dataclasses import dataclass

from gateway.auth.authenticator import Authenticator
from gateway.auth.identity import Identity, Limits, current
from services.common.artifacts.downloads import clean_name
from services.common.database import Database, Query, Rows, Steps
from services.common.errors import NotFound

TOKEN_SECONDS = 900.0
"""Lifetime of a token."""

UPLOADS = """
    CREATE TABLE uploads (
        digest BLOB PRIMARY KEY,
        tenant TEXT NOT NULL,
        key_id TEXT NOT NULL,
        limits TEXT NOT NULL,
        name TEXT NOT NULL,
        expires REAL NOT NULL
    );
    CREATE INDEX uploads_by_expiry ON uploads (expires)
"""
"""Table of the tokens. `digest` is the SHA-256 of a token, which is not stored."""

_ADD = "INSERT INTO uploads (digest, tenant, key_id, limits, name, expires) VALUES (?, ?, ?, ?, ?, ?)"
_TAKE = "DELETE FROM uploads WHERE digest = ? RETURNING tenant, key_id, limits, name, expires"


@dataclass(frozen=True)
class UploadToken:
    """Owner and name of the file to upload."""

    identity: Identity
    name: str


class UploadTokens:
    """Creates tokens for the current identity and redeems them.

    Args:
        database: the gateway's database.
        authenticator: checks that the key of the token's owner is still valid.
    """

    def __init__(self, database: Database, authenticator: Authenticator) -> None:
        self._database = database
        self._authenticator = authenticator

    async def create(self, name: str) -> str:
        """Creates a token for one file of this name."""
        secret, identity, now = secrets.token_urlsafe(32), current(), time.time()
        limits = identity.limits.model_dump_json()

        def operation() -> Steps[None]:
            yield Query("DELETE FROM uploads WHERE expires <= ?", (now,))
            yield Query(
                _ADD, (_digest(secret), identity.tenant, identity.key_id, limits, clean_name(name), now + TOKEN_SECONDS)
            )

        await self._database.write(operation)
        return secret

    async def redeem(self, secret: str) -> UploadToken:
        """Redeems a token, which is then invalid.

        Raises:
            NotFound: UPLOAD, the token is unknown, used or expired, or its owner's key is no longer valid.
        """

        def operation() -> Steps[Rows]:
            return (yield Query(_TAKE, (_digest(secret),), alone=True))

        for tenant, key_id, limits, name, expires in await self._database.write(operation):
            identity = Identity(tenant, key_id, limits=Limits.model_validate_json(limits))
            if expires > time.time() and await self._authenticator.is_valid(identity):
                return UploadToken(identity, name)
        raise NotFound(
            "this upload URL is unknown, used or expired",
            reason="UPLOAD",
            remedy="get another URL with the tool upload",
        )


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
