"""Webhooks and their deliveries: tables, operations, and their JSON."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from gateway.auth.audit import Actor, audit_query
from gateway.webhooks.sender import new_secret
from services.common.call_context import is_valid_tenant
from services.common.database import Database, Query, Rows, Steps
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound, PermissionDenied
from services.common.http_fetch.fetch import parse_url
from services.common.http_fetch.ssrf_guard import SsrfGuard

WEBHOOKS = """
    CREATE TABLE webhooks (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        url TEXT NOT NULL,
        name TEXT NOT NULL,
        secret TEXT NOT NULL,
        created REAL NOT NULL,
        ended REAL
    );
    CREATE INDEX webhooks_by_tenant ON webhooks (tenant, created, id);
    CREATE TABLE deliveries (
        id TEXT PRIMARY KEY,
        webhook_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        policy INTEGER NOT NULL,
        payload TEXT NOT NULL,
        created REAL NOT NULL,
        state TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        due REAL,
        outcome TEXT NOT NULL
    );
    CREATE INDEX deliveries_by_webhook ON deliveries (webhook_id, created, id);
    CREATE INDEX deliveries_by_time ON deliveries (due) WHERE due IS NOT NULL
"""
"""Ended webhooks get no deliveries; finished deliveries have no due time. The secrets sign, so they are not hashed."""

BATCHES = """
    ALTER TABLE deliveries ADD COLUMN batch_id TEXT NOT NULL DEFAULT '';
    ALTER TABLE ended_runs ADD COLUMN what TEXT NOT NULL DEFAULT 'ended runs'
"""
"""Keys of ended batches consist of the batch's id and round."""


MAX_WEBHOOKS = 20
"""Maximum number of webhooks of a tenant."""

NAME_CHARACTERS = 100
MAX_SHOWN_DELIVERIES = 50
"""Number of deliveries returned with a webhook."""

_COLUMNS = "id, tenant, url, name, secret, created, ended"
_DELIVERED = "id, run_id, batch_id, state, attempts, outcome, created, due"


@dataclass(frozen=True)
class Webhook:
    """A registered receiver of notifications."""

    id: str
    tenant: str
    url: str = field(repr=False)
    """Excluded from repr: some services put a secret into the URL."""
    name: str
    secret: str = field(repr=False)
    created: float
    """Unix time in seconds."""
    ended: float | None
    """Unix time at which the receiver answered 410 Gone; no delivery follows."""


@dataclass(frozen=True)
class Delivery:
    """A notification and the state of its delivery."""

    id: str
    run_id: str
    """Empty for a batch."""
    batch_id: str
    """Empty for a run."""
    state: str
    """One of waiting, delivered, failed and withheld."""
    attempts: int
    outcome: str
    """Result of the last attempt."""
    created: float
    due: float | None
    """Unix time of the next attempt."""


def render_webhook(webhook: Webhook) -> dict[str, Any]:
    """Renders a webhook without its secret."""
    ended = {"ended_at": int(webhook.ended)} if webhook.ended else {}
    about = {"url": webhook.url, "name": webhook.name, "created_at": int(webhook.created)}
    return {"id": webhook.id, "object": "webhook", **about, **ended}


def render_delivery(delivery: Delivery) -> dict[str, Any]:
    """Renders a delivery."""
    about = {"batch_id": delivery.batch_id} if delivery.batch_id else {"run_id": delivery.run_id}
    following = {"next_at": int(delivery.due)} if delivery.due else {}
    return {
        "id": delivery.id,
        **about,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "outcome": delivery.outcome,
        "created_at": int(delivery.created),
        **following,
    }


class Webhooks:
    """Webhooks in the database; changes are recorded in the audit log.

    Args:
        database: the gateway's database.
        guard: checks URLs at registration; None: they are only checked at delivery.
    """

    def __init__(self, database: Database, guard: SsrfGuard | None = None) -> None:
        self._database = database
        self._guard = guard

    async def create(self, tenant: str, url: str, name: str, by: Actor) -> Webhook:
        """Creates a webhook, which is notified of runs and batches that end from now on.

        Raises:
            InvalidRequest: invalid tenant or name; URL, neither https nor a host of the deployment.
            PermissionDenied: URL_ADDRESS or POLICY, the host may not be contacted. Addresses of host names are only
                checked at each delivery.
            FailedPrecondition: WEBHOOKS, the tenant has the maximum number.
        """
        _check(tenant, name)
        host = await self._checked_host(url)
        webhook_id, secret = f"wh_{secrets.token_hex(12)}", new_secret()

        def operation() -> Steps[Rows]:
            yield Query(self._database.dialect.lock, (f"webhooks {tenant}",))
            ((count,),) = yield Query("SELECT count(*) FROM webhooks WHERE tenant = ?", (tenant,))
            if count >= MAX_WEBHOOKS:
                what = f"the tenant {tenant} already has {count} webhooks, the maximum"
                raise FailedPrecondition(what, reason="WEBHOOKS", remedy="delete one of them")
            insert = (
                f"INSERT INTO webhooks ({_COLUMNS}) "  # noqa: S608  # of constants
                f"VALUES (?, ?, ?, ?, ?, {self._database.dialect.now}, NULL) RETURNING {_COLUMNS}"
            )
            rows = yield Query(insert, (webhook_id, tenant, url, name, secret))
            details = {"tenant": tenant, "name": name, "host": host}
            yield audit_query(self._database, by, "webhook.create", webhook_id, details)
            return rows

        (row,) = await self._database.write(operation)
        return Webhook(*row)

    async def list(self, tenant: str = "") -> Sequence[Webhook]:
        """Lists webhooks, oldest first; of all tenants if none is given."""
        select = f"SELECT {_COLUMNS} FROM webhooks WHERE ? IN ('', tenant) ORDER BY created, id"  # noqa: S608
        return [Webhook(*row) for row in await self._database.read(select, tenant)]

    async def get(self, webhook_id: str, tenant: str = "") -> Webhook:
        """Returns a webhook; of any tenant if none is given.

        Raises:
            NotFound: WEBHOOK.
        """
        select = f"SELECT {_COLUMNS} FROM webhooks WHERE id = ? AND ? IN ('', tenant)"  # noqa: S608  # of constants
        for row in await self._database.read(select, webhook_id, tenant):
            return Webhook(*row)
        raise NotFound(
            f"there is no webhook {webhook_id[:60]}", reason="WEBHOOK", remedy="list the webhooks for their ids"
        )

    async def delete(self, webhook_id: str, by: Actor, tenant: str = "") -> None:
        """Deletes a webhook with all its deliveries.

        Raises:
            NotFound: WEBHOOK.
        """
        await self.get(webhook_id, tenant)

        def operation() -> Steps[None]:
            yield audit_query(self._database, by, "webhook.delete", webhook_id, {})
            yield Query("DELETE FROM deliveries WHERE webhook_id = ?", (webhook_id,))
            yield Query("DELETE FROM webhooks WHERE id = ?", (webhook_id,))

        await self._database.write(operation)

    async def deliveries(self, webhook_id: str) -> Sequence[Delivery]:
        """Returns the most recent deliveries, newest first."""
        select = (
            f"SELECT {_DELIVERED} FROM deliveries WHERE webhook_id = ?"  # noqa: S608  # of constants
            f" ORDER BY created DESC, id DESC LIMIT {MAX_SHOWN_DELIVERIES}"
        )
        return [Delivery(*row) for row in await self._database.read(select, webhook_id)]

    async def _checked_host(self, url: str) -> str:
        """Checks a webhook's URL and returns its host."""
        parsed_url = parse_url(url)
        if self._guard:
            await _check_host(self._guard, parsed_url)
        if parsed_url.scheme != "https" and not (self._guard and self._guard.allows(parsed_url)):
            raise InvalidRequest(
                "the URL of a webhook must begin with https, unless the operator has listed its host",
                reason="URL",
                remedy="use a URL such as https://example.org/hooks, or have the host added to GATEWAY_FETCH_ALLOW",
                port="url",
            )
        return parsed_url.host


async def _check_host(guard: SsrfGuard, url: httpx.URL) -> None:
    try:
        guard.check(url)
        await guard.for_current_caller().check_address(url)
    except PermissionDenied as error:
        if error.reason != "URL_ADDRESS":
            raise
        raise PermissionDenied(
            f"cannot send webhooks to {url.host[:100]}: its address is not public, or its port is not 443",
            reason="URL_ADDRESS",
            remedy="use a public https URL, or ask the operator to add the host to GATEWAY_FETCH_ALLOW",
            port="url",
        ) from error


def _check(tenant: str, name: str) -> None:
    if not is_valid_tenant(tenant):
        remedy = "use up to 63 lower-case letters, digits and hyphens, starting with a letter or digit"
        raise InvalidRequest(f"invalid tenant name {tenant[:100]!r}", remedy=remedy, port="tenant")
    if len(name) > NAME_CHARACTERS or not name.isprintable():
        remedy = f"use up to {NAME_CHARACTERS} printable characters"
        raise InvalidRequest("invalid webhook name", remedy=remedy, port="name")
