"""Commands of hugginggpt keys. Their implementation is imported only when they run, so that --help is fast."""

from enum import StrEnum
from typing import Annotated

import typer

keys = typer.Typer(no_args_is_help=True)

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="GATEWAY_DATABASE",
        metavar="DATABASE",
        help="The gateway's database: a SQLite file or postgresql://… Unset: gateway.sqlite in HUGGINGGPT_HOME.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, nothing else.")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's public id, as keys list shows it.")]
Name = Annotated[str | None, typer.Option(metavar="TEXT", help="Description of the key.")]
Expires = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="When the key expires: 12h, 30d, a date such as 2030-01-31, or never."),
]
Requests = Annotated[int | None, typer.Option(min=0, metavar="N", help="Limit of requests per minute. 0: unlimited.")]
Runs = Annotated[int | None, typer.Option(min=0, metavar="N", help="Limit of concurrent runs. 0: unlimited.")]
Bytes = Annotated[int | None, typer.Option(min=0, metavar="N", help="Limit of uploaded bytes per day. 0: unlimited.")]
Tokens = Annotated[int | None, typer.Option(min=0, metavar="N", help="Limit of LLM tokens per day. 0: unlimited.")]
Admin = Annotated[
    bool | None,
    typer.Option("--admin/--no-admin", help="Allow changes that affect all tenants, such as removing experts."),
]


class KeyPolicy(StrEnum):
    """Data policy of requests with a key."""

    LOCAL = "local"
    OPEN = "open"


Policy = Annotated[
    KeyPolicy | None,
    typer.Option(
        help="local: no data leaves the deployment, and no request with this key can change that; open: data may go to "
        "the external services that the operator configured. Unset: the gateway's default."
    ),
]


@keys.callback()
def about() -> None:
    """Create, list, change and revoke the API keys of a gateway with GATEWAY_AUTHENTICATION=keys.

    These commands access the gateway's database directly. Run them with the gateway's GATEWAY_DATABASE, for example
    with kubectl exec. Gateways apply changes within two seconds.

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
        str, typer.Option(metavar="NAME", help="Tenant whose runs, files and artifacts the key can access.")
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
    """Create a key and print it. Only a digest is stored, so the key cannot be shown again.

    To rotate a key, create another one for the same tenant, deploy it, and revoke the old one.

    [bold]Examples[/]

      KEY=$(hugginggpt keys create --tenant research)

      hugginggpt keys create --tenant shop --policy local --concurrent-runs 4 --json
    """
    from gateway.cli import key_commands, terminal

    limits = key_commands.limits(requests_per_minute, concurrent_runs, bytes_per_day, tokens_per_day)
    with terminal.problems_reported():
        fields = key_commands.key_fields(name=name, expires=expires, policy=policy, admin=admin, limits=limits)
        key_commands.create(database, tenant, fields, as_json=as_json)


@keys.command("list")
def list_keys(
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Only keys of this tenant.")] = "",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """List all keys, including expired and revoked ones, without their secrets."""
    from gateway.cli import key_commands, terminal

    with terminal.problems_reported():
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
    """Change a key; options that are not given keep their value.

    [bold]Example[/]

      hugginggpt keys change 5f2a90c41be7 --tokens-per-day 2000000 --expires 2030-01-31
    """
    from gateway.cli import key_commands, terminal

    limits = key_commands.limits(requests_per_minute, concurrent_runs, bytes_per_day, tokens_per_day)
    with terminal.problems_reported():
        fields = key_commands.key_fields(name=name, expires=expires, policy=policy, admin=admin, limits=limits)
        key_commands.change(database, key_id, fields, as_json=as_json)


@keys.command()
def revoke(key_id: KeyId, database: Database = None) -> None:
    """Revoke a key permanently. Runs that were started with it continue."""
    from gateway.cli import key_commands, terminal

    with terminal.problems_reported():
        key_commands.revoke(database, key_id)
        typer.echo(f"revoked {key_id}")


@keys.command()
def audit(
    export: Annotated[bool, typer.Option("--export", help="One JSON object per line with all fields.")] = False,
    database: Database = None,
) -> None:
    """Print the audit log of key changes and deletions, oldest first. The log is append-only.

    [bold]Example[/]

      hugginggpt keys audit --export > audit.jsonl
    """
    from gateway.cli import key_commands, terminal

    with terminal.problems_reported():
        key_commands.audit(database, export=export)
