"""hugginggpt webhooks: its commands. What they do is imported when they run: help has to be quick."""

from typing import Annotated

import typer

from gateway.cli.keys import Database, Json

webhooks = typer.Typer(no_args_is_help=True)


@webhooks.callback()
def about() -> None:
    """Have a tenant's own servers told when its runs and batches end. A tenant can do so itself at /v1/webhooks.

    These commands work on the gateway's database itself, as hugginggpt keys does. What is sent is signed as Standard
    Webhooks say, and tells no content. Hosts that are not public, and those that may be told of what ends under
    the data policy local, are named in the gateway's GATEWAY_FETCH_ALLOW.

    [bold]Examples[/]

      SECRET=$(hugginggpt webhooks create https://example.org/hooks --tenant shop)

      hugginggpt webhooks list
    """


@webhooks.command()
def create(
    url: Annotated[str, typer.Argument(metavar="URL", help="Who is told; it begins with https.")],
    *,
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Whose runs and batches it is told of.")] = "default",
    name: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Make a webhook and print the secret that its server checks signatures with. It is shown only now."""
    from gateway.cli import terminal, webhook_commands

    with terminal.problems_told():
        webhook_commands.create(database, tenant, url, name, as_json=as_json)


@webhooks.command("list")
def list_webhooks(
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Only this tenant's.")] = "",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """List the webhooks, and what came of the last that each was told."""
    from gateway.cli import terminal, webhook_commands

    with terminal.problems_told():
        webhook_commands.show(database, tenant, as_json=as_json)


@webhooks.command()
def delete(
    webhook_id: Annotated[str, typer.Argument(metavar="ID", help="As webhooks list shows it.")],
    database: Database = None,
) -> None:
    """End a webhook at once; what it was still to be told is not sent."""
    from gateway.cli import terminal, webhook_commands

    with terminal.problems_told():
        webhook_commands.delete(database, webhook_id)
        typer.echo(f"deleted {webhook_id}")
