"""The commands of hugginggpt keys: read and write the gateway's database as its operator."""

import json
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gateway.cli import terminal
from gateway.cli.errors import USAGE, Problem
from gateway.cli.options import Json, Policy
from gateway.cli.terminal import one_line

if TYPE_CHECKING:
    from gateway.auth.api_keys import Key
    from services.common.database import Database as GatewayDatabase

keys = typer.Typer(no_args_is_help=True)

_DURATION = re.compile(r"(\d{1,5})([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 24 * 3600}

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="GATEWAY_DATABASE",
        metavar="DATABASE",
        help="The gateway's database: a SQLite file or postgresql://… Unset: gateway.sqlite in HUGGINGGPT_HOME.",
    ),
]
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


KeyPolicy = Annotated[
    Policy | None,
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
    policy: KeyPolicy = None,
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
    limits = _limits(requests_per_minute, concurrent_runs, bytes_per_day, tokens_per_day)
    with terminal.problems_reported():
        fields = _key_fields(name=name, expires=expires, policy=policy, admin=admin, limits=limits)
        _create(database, tenant, fields, as_json=as_json)


@keys.command("list")
def list_keys(
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Only keys of this tenant.")] = "",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """List all keys, including expired and revoked ones, without their secrets."""
    with terminal.problems_reported():
        _list(database, tenant, as_json=as_json)


@keys.command()
def change(
    key_id: KeyId,
    *,
    name: Name = None,
    expires: Expires = None,
    policy: KeyPolicy = None,
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
    limits = _limits(requests_per_minute, concurrent_runs, bytes_per_day, tokens_per_day)
    with terminal.problems_reported():
        fields = _key_fields(name=name, expires=expires, policy=policy, admin=admin, limits=limits)
        _change(database, key_id, fields, as_json=as_json)


@keys.command()
def revoke(key_id: KeyId, database: Database = None) -> None:
    """Revoke a key permanently. Runs that were started with it continue."""
    from gateway.auth.api_keys import Keys
    from gateway.cli.operator_database import operator, run_on_database

    with terminal.problems_reported():
        run_on_database(database, lambda opened: Keys(opened).revoke(key_id, operator()))
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
    from gateway.auth.audit import Audit
    from gateway.cli.operator_database import run_on_database

    async def print_entries(opened: "GatewayDatabase") -> None:
        async for entry in Audit(opened).entries():
            sys.stdout.write((json.dumps(entry) if export else _audit_line(entry)) + "\n")

    with terminal.problems_reported():
        run_on_database(database, print_entries)


def _limits(requests: int | None, runs: int | None, bytes_: int | None, tokens: int | None) -> Mapping[str, int]:
    """The limits that were given."""
    from gateway.auth.identity import Limits

    given = zip(Limits.model_fields, (requests, runs, bytes_, tokens), strict=True)
    return {name: limit for name, limit in given if limit is not None}


def _key_fields(
    *, name: str | None, expires: str | None, policy: str | None, admin: bool | None, limits: Mapping[str, int]
) -> dict[str, Any]:
    """The fields of Terms that were given.

    Raises:
        Problem: expires is not a time.
    """
    from protos.hugginggpt.v1.caller_pb2 import DataPolicy

    given = {
        "name": name,
        "policy": DataPolicy.Value(f"DATA_POLICY_{policy.upper()}") if policy else None,
        "admin": admin,
        "limits": limits or None,
    }
    named = {field: value for field, value in given.items() if value is not None}
    return named | ({"expires": _time(expires)} if expires else {})


def _create(database_url: str | None, tenant: str, fields: Mapping[str, Any], *, as_json: bool) -> None:
    """Creates a key; prints the key to standard output and its id to standard error."""
    from gateway.auth.api_keys import Keys, Terms
    from gateway.cli.operator_database import operator, run_on_database

    async def made(database: "GatewayDatabase") -> "tuple[Key, str]":
        return await Keys(database).create(Terms(tenant, **fields), operator())

    key, token = run_on_database(database_url, made)
    if as_json:
        terminal.print_json({"key": token, **_as_json(key)})
        return
    terminal.err().print(f"key {key.id} of tenant {key.terms.tenant}; it cannot be shown again:", soft_wrap=True)
    sys.stdout.write(token + "\n")


def _list(database_url: str | None, tenant: str, *, as_json: bool) -> None:
    """Prints the keys as a table or as JSON."""
    from gateway.auth.api_keys import Keys
    from gateway.cli.operator_database import run_on_database

    found = run_on_database(database_url, lambda database: Keys(database).list(tenant))
    if as_json:
        terminal.print_json({"keys": [_as_json(key) for key in found]})
        return
    if not found:
        terminal.err().print("there are no keys; create one with hugginggpt keys create")
        return
    table = Table(box=None)
    for column in ("id", "state", "tenant", "name", "policy", "created", "expires", "limits"):
        table.add_column(column, no_wrap=column in {"id", "state", "created", "expires"}, overflow="fold")
    for key in found:
        table.add_row(*(one_line(cell) for cell in _cells(_as_json(key))))
    Console(highlight=False).print(table)


def _change(database_url: str | None, key_id: str, fields: Mapping[str, Any], *, as_json: bool) -> None:
    """Changes a key; raises Problem if no field is given, or no valid key has this id."""
    from gateway.auth.api_keys import Keys
    from gateway.cli.operator_database import operator, run_on_database

    if not fields:
        raise Problem("nothing to change", remedy="see hugginggpt keys change --help", status=USAGE)
    key = run_on_database(database_url, lambda database: Keys(database).change(key_id, fields, operator()))
    if as_json:
        terminal.print_json(_as_json(key))
    else:
        sys.stdout.write(f"changed {key.id}\n")


def _time(text: str) -> float | None:
    if text == "never":
        return None
    if found := _DURATION.fullmatch(text):
        return time.time() + int(found[1]) * _SECONDS[found[2]]
    try:
        day = date.fromisoformat(text)
    except ValueError:
        remedy = "give 90m, 12h, 30d, a date such as 2030-01-31, or never"
        raise Problem(f"{text} is not a valid expiry time", remedy=remedy, status=USAGE) from None
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def _as_json(key: "Key") -> dict[str, Any]:
    from protos.hugginggpt.v1.caller_pb2 import DataPolicy

    return {
        "id": key.id,
        "state": key.state(time.time()),
        "tenant": key.terms.tenant,
        "name": key.terms.name,
        "policy": DataPolicy.Name(key.terms.policy).removeprefix("DATA_POLICY_").lower() if key.terms.policy else None,
        "admin": key.terms.admin,
        "created": _stamp(key.created),
        "expires": _stamp(key.terms.expires),
        "revoked": _stamp(key.revoked),
        "limits": dict(key.terms.limits),
    }


def _cells(key: Mapping[str, Any]) -> list[str]:
    limits = ", ".join(f"{name.replace('_', ' ')} {limit}" for name, limit in key["limits"].items())
    policy = ", ".join(filter(None, (key["policy"], "admin" if key["admin"] else "")))
    times = (key["created"][:10], (key["expires"] or "never")[:10])
    return [key["id"], key["state"], key["tenant"], key["name"], policy, *times, limits]


def _stamp(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _audit_line(entry: Mapping[str, Any]) -> str:
    actor = entry["actor"] or "unknown user of this machine"
    return one_line(f"{entry['at']}  {entry['tenant']}  {actor}  {entry['action']}  {entry['subject']}")
