"""What hugginggpt webhooks does: works on the gateway's database, as the operator of its machine."""

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.cli import terminal
from gateway.cli.live_view import one_line
from gateway.cli.operator_database import operator, worked_on
from gateway.settings import Settings
from gateway.webhooks.registry import Webhook, Webhooks
from gateway.webhooks.rendering import render_webhook
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
from services.common.call_context import use_caller
from services.common.database import Database
from services.common.http_fetch.addresses import AllowList
from services.common.http_fetch.ssrf_guard import SsrfGuard
from services.common.settings import from_environment


def create(place: str | None, tenant: str, url: str, name: str, *, as_json: bool) -> None:
    """Prints the secret to standard output, and what there is to say about it elsewhere."""

    async def create_checked(database: Database) -> Webhook:
        settings = from_environment(Settings)
        guard = SsrfGuard(AllowList.parse(settings.fetch_allow), internal_only=not settings.fetch_urls)
        with use_caller(Caller(tenant=tenant, policy=DATA_POLICY_OPEN)):  # so that the name is looked up
            return await Webhooks(database, guard).create(tenant, url, name, operator())

    made = worked_on(place, create_checked)
    if as_json:
        terminal.tell_json({**_told(made, ""), "secret": made.secret})
        return
    terminal.err().print(f"webhook {made.id} of tenant {tenant}; its secret is shown only now:", soft_wrap=True)
    sys.stdout.write(made.secret + "\n")


def show(place: str | None, tenant: str, *, as_json: bool) -> None:
    found = worked_on(place, lambda database: _all(database, tenant))
    if as_json:
        terminal.tell_json({"webhooks": found})
        return
    if not found:
        terminal.err().print("there is no webhook; make one with hugginggpt webhooks create")
        return
    table = Table(box=None)
    for column in ("id", "tenant", "name", "url", "last told"):
        table.add_column(column, no_wrap=column == "id", overflow="fold")
    for each in found:
        table.add_row(*(one_line(each[cell]) for cell in ("id", "tenant", "name", "url", "last")))
    Console(highlight=False).print(table)


def delete(place: str | None, webhook_id: str) -> None:
    worked_on(place, lambda database: Webhooks(database).delete(webhook_id, operator()))


async def _all(database: Database, tenant: str) -> Sequence[dict[str, Any]]:
    webhooks = Webhooks(database)
    return [_told(each, await _last(webhooks, each)) for each in await webhooks.list(tenant)]


async def _last(webhooks: Webhooks, webhook: Webhook) -> str:
    for delivery in await webhooks.deliveries(webhook.id):
        return f"{delivery.state}: {delivery.outcome}" if delivery.outcome else delivery.state
    return ""


def _told(webhook: Webhook, last: str) -> dict[str, Any]:
    return {**render_webhook(webhook), "tenant": webhook.tenant, "last": last}
