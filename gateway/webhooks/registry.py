"""Who is told: a tenant's webhooks."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from gateway.auth.audit import Actor, recorded
from gateway.webhooks.signature import new_secret
from services.common.artifacts.naming import is_valid_tenant
from services.common.database import Database, Query, Rows, Steps
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound, PermissionDenied
from services.common.http_fetch.fetch import parse_url
from services.common.http_fetch.ssrf_guard import SsrfGuard

MOST = 20
"""Webhooks of a tenant."""

NAME_CHARACTERS = 100
SHOWN = 50
"""Deliveries that are told of a webhook."""

_COLUMNS = "id, tenant, url, name, secret, created, ended"
_DELIVERED = "id, run_id, batch_id, state, attempts, outcome, created, due"


@dataclass(frozen=True)
class Webhook:
    """Somebody who is told."""

    id: str
    tenant: str
    url: str = field(repr=False)
    """Some services have a secret in it."""
    name: str
    secret: str = field(repr=False)
    created: float
    """Seconds since the epoch."""
    ended: float | None
    """When its server said that it is gone; it is told no more."""


@dataclass(frozen=True)
class Delivery:
    """One thing to tell, and what became of it."""

    id: str
    run_id: str
    """Empty if it is of a batch."""
    batch_id: str
    """Empty if it is of a run."""
    state: str
    """It is waiting, delivered, failed or withheld."""
    attempts: int
    outcome: str
    """Of the last attempt."""
    created: float
    due: float | None
    """When it is tried next."""


class Webhooks:
    """All of them; what is done to them stands in the audit log.

    Args:
        database: the gateway's.
        guard: decides which URLs may be given; None: whether they may be asked is seen when they are.
    """

    def __init__(self, database: Database, guard: SsrfGuard | None = None) -> None:
        self._database = database
        self._guard = guard

    async def create(self, tenant: str, url: str, name: str, by: Actor) -> Webhook:
        """A new one; it is told of runs and batches that end from now on.

        Raises:
            InvalidRequest: the tenant, the name or the URL cannot be one; URL, it is neither https nor of the house.
            PermissionDenied: URL_ADDRESS or POLICY, its host may not be sent anything. A name is accepted: its
                addresses are checked at each delivery.
            FailedPrecondition: WEBHOOKS, the tenant has as many as it can have.
        """
        _check(tenant, name)
        host = await self._checked(url)
        webhook_id, secret = f"wh_{secrets.token_hex(12)}", new_secret()

        def operation() -> Steps[Rows]:
            yield Query(self._database.dialect.lock, (f"webhooks {tenant}",))
            ((count,),) = yield Query("SELECT count(*) FROM webhooks WHERE tenant = ?", (tenant,))
            if count >= MOST:
                what = f"the tenant {tenant} has {count} webhooks, which is as many as it can have"
                raise FailedPrecondition(what, reason="WEBHOOKS", remedy="delete one of them")
            insert = (
                f"INSERT INTO webhooks ({_COLUMNS}) "  # noqa: S608  # of constants
                f"VALUES (?, ?, ?, ?, ?, {self._database.dialect.now}, NULL) RETURNING {_COLUMNS}"
            )
            rows = yield Query(insert, (webhook_id, tenant, url, name, secret))
            told = {"tenant": tenant, "name": name, "host": host}
            yield recorded(self._database, by, "webhook.create", webhook_id, told)
            return rows

        (row,) = await self._database.write(operation)
        return Webhook(*row)

    async def list(self, tenant: str = "") -> Sequence[Webhook]:
        """Webhooks, the oldest first; of all tenants if none is named."""
        select = f"SELECT {_COLUMNS} FROM webhooks WHERE ? IN ('', tenant) ORDER BY created, id"  # noqa: S608
        return [Webhook(*row) for row in await self._database.read(select, tenant)]

    async def get(self, webhook_id: str, tenant: str = "") -> Webhook:
        """One; of any tenant if none is named.

        Raises:
            NotFound: WEBHOOK.
        """
        select = f"SELECT {_COLUMNS} FROM webhooks WHERE id = ? AND ? IN ('', tenant)"  # noqa: S608  # of constants
        for row in await self._database.read(select, webhook_id, tenant):
            return Webhook(*row)
        raise NotFound(f"there is no webhook {webhook_id[:60]}", reason="WEBHOOK", remedy="list the webhooks")

    async def delete(self, webhook_id: str, by: Actor, tenant: str = "") -> None:
        """Removes one, with all it was and would have been told.

        Raises:
            NotFound: WEBHOOK.
        """
        await self.get(webhook_id, tenant)

        def operation() -> Steps[None]:
            yield recorded(self._database, by, "webhook.delete", webhook_id, {})
            yield Query("DELETE FROM deliveries WHERE webhook_id = ?", (webhook_id,))
            yield Query("DELETE FROM webhooks WHERE id = ?", (webhook_id,))

        await self._database.write(operation)

    async def deliveries(self, webhook_id: str) -> Sequence[Delivery]:
        """The last of what it was told or is to be told, the newest first."""
        select = (
            f"SELECT {_DELIVERED} FROM deliveries WHERE webhook_id = ?"  # noqa: S608  # of constants
            f" ORDER BY created DESC, id DESC LIMIT {SHOWN}"
        )
        return [Delivery(*row) for row in await self._database.read(select, webhook_id)]

    async def _checked(self, url: str) -> str:
        """The URL's host."""
        asked = parse_url(url)
        if self._guard:
            await _check_host(self._guard, asked)
        if asked.scheme != "https" and not (self._guard and self._guard.allows(asked)):
            raise InvalidRequest(
                "the URL of a webhook begins with https, unless the operator has named its host as one of the house",
                reason="URL",
                remedy="give one such as https://example.org/hooks, or ask for GATEWAY_FETCH_ALLOW",
                port="url",
            )
        return asked.host


async def _check_host(guard: SsrfGuard, url: httpx.URL) -> None:
    try:
        guard.check(url)
        await guard.for_current_caller().check_address(url)
    except PermissionDenied as error:
        if error.reason != "URL_ADDRESS":
            raise
        raise PermissionDenied(
            f"a webhook cannot be sent to {url.host[:100]}: its address is not public, or its port is not 443",
            reason="URL_ADDRESS",
            remedy="use a public https address, or ask the operator to name the host in GATEWAY_FETCH_ALLOW",
            port="url",
        ) from error


def _check(tenant: str, name: str) -> None:
    if not is_valid_tenant(tenant):
        remedy = "use up to 63 small letters, digits, dots, hyphens and underscores, a letter or digit first"
        raise InvalidRequest(f"a tenant cannot be called {tenant[:100]!r}", remedy=remedy, port="tenant")
    if len(name) > NAME_CHARACTERS or not name.isprintable():
        remedy = f"use up to {NAME_CHARACTERS} printable characters"
        raise InvalidRequest("a webhook cannot be called so", remedy=remedy, port="name")
