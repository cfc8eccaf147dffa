"""The commands of hugginggpt webhooks: read and write the gateway's database as its operator."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gateway.cli import terminal
from gateway.cli.keys import Database
from gateway.cli.options import Json
from gateway.cli.terminal import one_line

if TYPE_CHECKING:
    from gateway.webhooks.registry import Webhook, Webhooks
    from services.common.database import Database as GatewayDatabase

webhooks = typer.Typer(no_args_is_help=True)


@webhooks.callback()
def about() -> None:
    """Notify a tenant's servers when its runs and batches end. Tenants can manage their webhooks at /v1/webhooks.

    These commands access the gateway's database directly, like hugginggpt keys. Deliveries are signed as specified by
    Standard Webhooks and contain no content of the run. GATEWAY_FETCH_ALLOW of the gateway lists the hosts that are
    not public and those that may be notified of runs with the data policy local.

    [bold]Examples[/]

      SECRET=$(hugginggpt webhooks create https://example.org/hooks --tenant shop)

      hugginggpt webhooks list
    """


@webhooks.command()
def create(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address to notify; an https:// URL.")],
    *,
    tenant: Annotated[
        str, typer.Option(metavar="NAME", help="Tenant whose runs and batches are reported.")
    ] = "default",
    name: Annotated[str, typer.Option(metavar="TEXT", help="Description of the webhook.")] = "",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Create a webhook and print the secret for checking signatures. The secret cannot be shown again."""
    with terminal.problems_reported():
        _create(database, tenant, url, name, as_json=as_json)


@webhooks.command("list")
def list_webhooks(
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Only webhooks of this tenant.")] = "",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """List the webhooks with the result of their last delivery."""
    with terminal.problems_reported():
        _list(database, tenant, as_json=as_json)


@webhooks.command()
def delete(
    webhook_id: Annotated[str, typer.Argument(metavar="ID", help="Id as shown by webhooks list.")],
    database: Database = None,
) -> None:
    """Delete a webhook; pending deliveries are not sent."""
    from gateway.cli.operator_database import operator, run_on_database
    from gateway.webhooks.registry import Webhooks

    with terminal.problems_reported():
        run_on_database(database, lambda opened: Webhooks(opened).delete(webhook_id, operator()))
        typer.echo(f"deleted {webhook_id}")


def _create(database_url: str | None, tenant: str, url: str, name: str, *, as_json: bool) -> None:
    """Creates a webhook; prints its secret to standard output and its id to standard error."""
    from gateway.cli.operator_database import operator, run_on_database
    from gateway.settings import Settings
    from gateway.webhooks.registry import Webhooks
    from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
    from services.common.call_context import use_caller
    from services.common.http_fetch.addresses import AllowList
    from services.common.http_fetch.ssrf_guard import SsrfGuard
    from services.common.settings import from_environment

    async def create_with_guard(database: "GatewayDatabase") -> "Webhook":
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


def _list(database_url: str | None, tenant: str, *, as_json: bool) -> None:
    """Prints the webhooks as a table or as JSON."""
    from gateway.cli.operator_database import run_on_database

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


async def _all(database: "GatewayDatabase", tenant: str) -> Sequence[dict[str, Any]]:
    from gateway.webhooks.registry import Webhooks

    webhooks = Webhooks(database)
    return [_as_json(each, await _last(webhooks, each)) for each in await webhooks.list(tenant)]


async def _last(webhooks: "Webhooks", webhook: "Webhook") -> str:
    for delivery in await webhooks.deliveries(webhook.id):
        return f"{delivery.state}: {delivery.outcome}" if delivery.outcome else delivery.state
    return ""


def _as_json(webhook: "Webhook", last: str) -> dict[str, Any]:
    from gateway.webhooks.registry import render_webhook

    return {**render_webhook(webhook), "tenant": webhook.tenant, "last": last}
