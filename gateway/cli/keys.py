"""hugginggpt keys: its commands. What they do is imported when they run: help has to be quick."""

from enum import StrEnum
from typing import Annotated

import typer

keys = typer.Typer(no_args_is_help=True)

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="GATEWAY_DATABASE",
        metavar="PLACE",
        help="The gateway's database: a SQLite file, or postgresql://… Unset: gateway.sqlite in HUGGINGGPT_HOME.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, nothing else.")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's public id, as keys list shows it.")]
Name = Annotated[str | None, typer.Option(metavar="TEXT", help="What the key is for.")]
Expires = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="When it ends: 12h, 30d, a date such as 2030-01-31, or never."),
]
Requests = Annotated[int | None, typer.Option(min=0, metavar="N", help="Most requests in a minute. 0: any number.")]
Runs = Annotated[int | None, typer.Option(min=0, metavar="N", help="Most runs at a time. 0: any number.")]
Bytes = Annotated[int | None, typer.Option(min=0, metavar="N", help="Most bytes sent in a day. 0: any number.")]
Tokens = Annotated[int | None, typer.Option(min=0, metavar="N", help="Most LLM tokens in a day. 0: any number.")]
Admin = Annotated[
    bool | None, typer.Option("--admin/--no-admin", help="May change what all tenants share: forget experts.")
]


class KeyPolicy(StrEnum):
    """Whether what comes with a key may leave the house."""

    LOCAL = "local"
    OPEN = "open"


Policy = Annotated[
    KeyPolicy | None,
    typer.Option(
        help="local: no byte leaves the house, and no request with this key may ask for it; open: bytes may go where "
        "the operator has configured. Unset: as the gateway is set up."
    ),
]


@keys.callback()
def about() -> None:
    """Make, list, change and end the keys of a gateway that runs with GATEWAY_AUTHENTICATION=keys.

    These commands work on the gateway's database itself. Run them where GATEWAY_DATABASE is set as it is for the
    gateway, such as by kubectl exec. A gateway notices within two seconds.

    [bold]Examples[/]

      hugginggpt keys create --name "the shop's bot" --tenant shop --expires 90d --requests-per-minute 60

      curl -H "Authorization: Bearer $KEY" http://127.0.0.1:8080/v1/tasks

      hugginggpt keys revoke 5f2a90c41be7
    """


@keys.command()
def create(
    *,
    name: Name = None,
    tenant: Annotated[
        str, typer.Option(metavar="NAME", help="Whose runs, files and artifacts it reaches; made by naming it.")
    ] = "default",
    expires: Expires = None,
    policy: Policy = None,
    admin: Admin = None,
    requests_per_minute: Requests = None,
    concurrent_runs: Runs = None,
    bytes_per_day: Bytes = None,
    tokens_per_day: Tokens = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it. Only a digest is kept: it cannot be shown again.

    To change a key's secret, make another key for the same tenant, put it in use, and revoke the old one.

    [bold]Examples[/]

      KEY=$(hugginggpt keys create --tenant research)

      hugginggpt keys create --tenant shop --policy local --concurrent-runs 4 --json
    """
    from gateway.cli import key_commands, terminal

    limits = key_commands.limits(requests_per_minute, concurrent_runs, bytes_per_day, tokens_per_day)
    with terminal.problems_told():
        wanted = key_commands.wanted(name=name, expires=expires, policy=policy, admin=admin, limits=limits)
        key_commands.create(database, tenant, wanted, as_json=as_json)


@keys.command("list")
def list_keys(
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Only this tenant's.")] = "",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """List the keys, those that have ended, too; secrets are not known here."""
    from gateway.cli import key_commands, terminal

    with terminal.problems_told():
        key_commands.show(database, tenant, as_json=as_json)


@keys.command()
def change(
    key_id: KeyId,
    *,
    name: Name = None,
    expires: Expires = None,
    policy: Policy = None,
    admin: Admin = None,
    requests_per_minute: Requests = None,
    concurrent_runs: Runs = None,
    bytes_per_day: Bytes = None,
    tokens_per_day: Tokens = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Change what a key is good for; what is not named stays as it is.

    [bold]Example[/]

      hugginggpt keys change 5f2a90c41be7 --tokens-per-day 2000000 --expires 2030-01-31
    """
    from gateway.cli import key_commands, terminal

    limits = key_commands.limits(requests_per_minute, concurrent_runs, bytes_per_day, tokens_per_day)
    with terminal.problems_told():
        wanted = key_commands.wanted(name=name, expires=expires, policy=policy, admin=admin, limits=limits)
        key_commands.change(database, key_id, wanted, as_json=as_json)


@keys.command()
def revoke(key_id: KeyId, database: Database = None) -> None:
    """End a key for good. Runs that were started with it go on."""
    from gateway.cli import key_commands, terminal

    with terminal.problems_told():
        key_commands.revoke(database, key_id)
        typer.echo(f"revoked {key_id}")


@keys.command()
def audit(
    export: Annotated[
        bool, typer.Option("--export", help="One JSON object a line, with all that is known of each act.")
    ] = False,
    database: Database = None,
) -> None:
    """Tell who made, changed and revoked keys and who deleted what, the oldest first. Nothing of it can be changed.

    [bold]Example[/]

      hugginggpt keys audit --export > audit.jsonl
    """
    from gateway.cli import key_commands, terminal

    with terminal.problems_told():
        key_commands.audit(database, export=export)
