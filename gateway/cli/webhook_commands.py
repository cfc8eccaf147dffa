"""Implementation of hugginggpt webhooks: reads and writes the gateway's database as its operator."""

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.cli import terminal
from gateway.cli.live_view import one_line
from gateway.cli.operator_database import operator, run_on_database
from gateway.settings import Settings
from gateway.webhooks.registry import Webhook, Webhooks
from gateway.webhooks.rendering import render_webhook
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
from services.common.call_context import use_caller
from services.common.database import Database
from services.common.http_fetch.addresses import AllowList
from services.common.http_fetch.ssrf_guard import SsrfGuard
from services.common.settings import from_environment


def create(database_url: str | None, tenant: str, url: str, name: str, *, as_json: bool) -> None:
    """Creates a webhook; prints its secret to standard output and its id to standard error."""

    async def create_with_guard(database: Database) -> Webhook:
        settings = from_environment(Settings)
        guard = SsrfGuard(AllowList.parse(settings.fetch_allow), internal_only=not settings.fetch_urls)
        with use_caller(Caller(tenant=tenant, policy=DATA_POLICY_OPEN)):  # so that the host name is resolved
            return await Webhooks(database, guard).create(tenant, url, name, operator())

    webhook = run_on_database(database_url, create_with_guard)
    if as_json:
        terminal.print_json({**_as_json(webhook, ""), "secret": webhook.secret})
        return
    terminal.err().print(f"webhook {webhook.id} of tenant {tenant}; its secret cannot be shown again:", soft_wrap=True)
    sys.stdout.write(webhook.secret + "\n")


def show(database_url: str | None, tenant: str, *, as_json: bool) -> None:
    found = run_on_database(database_url, lambda database: _all(database, tenant))
    if as_json:
        terminal.print_json({"webhooks": found})
        return
    if not found:
        terminal.err().print("there are no webhooks; create one with hugginggpt webhooks create")
        return
    table = Table(box=None)
    for column in ("id", "tenant", "name", "url", "last delivery"):
        table.add_column(column, no_wrap=column == "id", overflow="fold")
    for each in found:
        table.add_row(*(one_line(each[cell]) for cell in ("id", "tenant", "name", "url", "last")))
    Console(highlight=False).print(table)


def delete(database_url: str | None, webhook_id: str) -> None:
    run_on_database(database_url, lambda database: Webhooks(database).delete(webhook_id, operator()))


async def _all(database: Database, tenant: str) -> Sequence[dict[str, Any]]:
    webhooks = Webhooks(database)
    return [_as_json(each, await _last(webhooks, each)) for each in await webhooks.list(tenant)]


async def _last(webhooks: Webhooks, webhook: Webhook) -> str:
    for delivery in await webhooks.deliveries(webhook.id):
        return f"{delivery.state}: {delivery.outcome}" if delivery.outcome else delivery.state
    return ""


def _as_json(webhook: Webhook, last: str) -> dict[str, Any]:
    return {**render_webhook(webhook), "tenant": webhook.tenant, "last": last}
