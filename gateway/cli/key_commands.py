"""Implementation of hugginggpt keys: reads and writes the gateway's database as its operator."""

import json
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.auth.api_keys import Key, Keys, Terms
from gateway.auth.audit import Audit
from gateway.auth.identity import Limits
from gateway.cli import terminal
from gateway.cli.errors import USAGE, Problem
from gateway.cli.live_view import one_line
from gateway.cli.operator_database import operator, run_on_database
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from services.common.database import Database

_DURATION = re.compile(r"(\d{1,5})([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 24 * 3600}


def limits(requests: int | None, runs: int | None, bytes_: int | None, tokens: int | None) -> Mapping[str, int]:
    """The limits that were given."""
    given = zip(Limits.model_fields, (requests, runs, bytes_, tokens), strict=True)
    return {name: limit for name, limit in given if limit is not None}


def key_fields(
    *, name: str | None, expires: str | None, policy: str | None, admin: bool | None, limits: Mapping[str, int]
) -> dict[str, Any]:
    """The fields of Terms that were given.

    Raises:
        Problem: expires is not a time.
    """
    given = {
        "name": name,
        "policy": DataPolicy.Value(f"DATA_POLICY_{policy.upper()}") if policy else None,
        "admin": admin,
        "limits": limits or None,
    }
    named = {field: value for field, value in given.items() if value is not None}
    return named | ({"expires": _time(expires)} if expires else {})


def create(database_url: str | None, tenant: str, fields: Mapping[str, Any], *, as_json: bool) -> None:
    """Creates a key; prints the key to standard output and its id to standard error."""

    async def made(database: Database) -> tuple[Key, str]:
        return await Keys(database).create(Terms(tenant, **fields), operator())

    key, token = run_on_database(database_url, made)
    if as_json:
        terminal.print_json({"key": token, **_as_json(key)})
        return
    terminal.err().print(f"key {key.id} of tenant {key.terms.tenant}; it cannot be shown again:", soft_wrap=True)
    sys.stdout.write(token + "\n")


def show(database_url: str | None, tenant: str, *, as_json: bool) -> None:
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


def change(database_url: str | None, key_id: str, fields: Mapping[str, Any], *, as_json: bool) -> None:
    """Changes a key; raises Problem if no field is given, or no valid key has this id."""
    if not fields:
        raise Problem("nothing to change", remedy="see hugginggpt keys change --help", status=USAGE)
    key = run_on_database(database_url, lambda database: Keys(database).change(key_id, fields, operator()))
    if as_json:
        terminal.print_json(_as_json(key))
    else:
        sys.stdout.write(f"changed {key.id}\n")


def revoke(database_url: str | None, key_id: str) -> None:
    run_on_database(database_url, lambda database: Keys(database).revoke(key_id, operator()))


def audit(database_url: str | None, *, export: bool) -> None:
    async def print_entries(database: Database) -> None:
        async for entry in Audit(database).entries():
            sys.stdout.write((json.dumps(entry) if export else _line(entry)) + "\n")

    run_on_database(database_url, print_entries)


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


def _as_json(key: Key) -> dict[str, Any]:
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


def _line(entry: Mapping[str, Any]) -> str:
    actor = entry["actor"] or "unknown user of this machine"
    return one_line(f"{entry['at']}  {entry['tenant']}  {actor}  {entry['action']}  {entry['subject']}")
