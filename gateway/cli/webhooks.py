"""Commands of hugginggpt webhooks. Their implementation is imported only when they run, so that --help is fast."""

from typing import Annotated

import typer

from gateway.cli.keys import Database, Json

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
    from gateway.cli import terminal, webhook_commands

    with terminal.problems_reported():
        webhook_commands.create(database, tenant, url, name, as_json=as_json)


@webhooks.command("list")
def list_webhooks(
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Only webhooks of this tenant.")] = "",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """List the webhooks with the result of their last delivery."""
    from gateway.cli import terminal, webhook_commands

    with terminal.problems_reported():
        webhook_commands.show(database, tenant, as_json=as_json)


@webhooks.command()
def delete(
    webhook_id: Annotated[str, typer.Argument(metavar="ID", help="Id as shown by webhooks list.")],
    database: Database = None,
) -> None:
    """Delete a webhook; pending deliveries are not sent."""
    from gateway.cli import terminal, webhook_commands

    with terminal.problems_reported():
        webhook_commands.delete(database, webhook_id)
        typer.echo(f"deleted {webhook_id}")
