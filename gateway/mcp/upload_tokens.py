"""Leave to send one file without a key, for a short time: an agent can hand it to what holds the file.

It is kept in the gateway's database, so that any gateway takes it, and none takes it twice.
"""

import hashlib
import secrets
import time
from dataclasses import dataclass

from gateway.auth.authenticator import Authenticator
from gateway.auth.identity import Identity, current
from gateway.limits.limits import Limits
from services.common.artifacts.naming import clean_name
from services.common.database import Database, Query, Rows, Steps
from services.common.errors import NotFound

GRANT_SECONDS = 900.0
"""How long after it was given an upload may begin."""

_ADD = "INSERT INTO uploads (digest, tenant, key_id, limits, name, expires) VALUES (?, ?, ?, ?, ?, ?)"
_TAKE = "DELETE FROM uploads WHERE digest = ? RETURNING tenant, key_id, limits, name, expires"


@dataclass(frozen=True)
class Grant:
    """Whose file it will be, and what it is called."""

    identity: Identity
    name: str


class Grants:
    """Gives leave to the current identity, and takes it back when it is used.

    Args:
        database: the gateway's.
        gate: knows whose key has ended since.
    """

    def __init__(self, database: Database, authenticator: Authenticator) -> None:
        self._database = database
        self._authenticator = authenticator

    async def give(self, name: str) -> str:
        """A secret for one file of that name."""
        secret, who, now = secrets.token_urlsafe(32), current(), time.time()
        limits = who.limits.model_dump_json()

        def operation() -> Steps[None]:
            yield Query("DELETE FROM uploads WHERE expires <= ?", (now,))
            yield Query(_ADD, (_digest(secret), who.tenant, who.key_id, limits, clean_name(name), now + GRANT_SECONDS))

        await self._database.write(operation)
        return secret

    async def take(self, secret: str) -> Grant:
        """What was given; the secret is worth nothing from now on.

        Raises:
            NotFound: UPLOAD, it never was, has been used, or its time or its key's is over.
        """

        def operation() -> Steps[Rows]:
            return (yield Query(_TAKE, (_digest(secret),), alone=True))

        for tenant, key_id, limits, name, expires in await self._database.write(operation):
            who = Identity(tenant, key_id, limits=Limits.model_validate_json(limits))
            if expires > time.time() and await self._authenticator.is_valid(who):
                return Grant(who, name)
        raise NotFound(
            "nothing can be uploaded here: the URL has been used, or its time is over",
            reason="UPLOAD",
            remedy="ask the tool upload for another URL",
        )


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
