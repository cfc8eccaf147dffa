"""What hugginggpt keys does: works on the gateway's database, as the operator of its machine."""

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
from gateway.cli import terminal
from gateway.cli.errors import USAGE, Problem
from gateway.cli.live_view import one_line
from gateway.cli.operator_database import operator, worked_on
from gateway.limits.limits import Limits
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from services.common.database import Database

_FOR = re.compile(r"(\d{1,5})([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 24 * 3600}


def limits(requests: int | None, runs: int | None, bytes_: int | None, tokens: int | None) -> Mapping[str, int]:
    """Those that were named."""
    given = zip(Limits.model_fields, (requests, runs, bytes_, tokens), strict=True)
    return {name: limit for name, limit in given if limit is not None}


def wanted(
    *, name: str | None, expires: str | None, policy: str | None, admin: bool | None, limits: Mapping[str, int]
) -> dict[str, Any]:
    """Fields of Terms: those that were named.

    Raises:
        Problem: no time can be read from expires.
    """
    given = {
        "name": name,
        "policy": DataPolicy.Value(f"DATA_POLICY_{policy.upper()}") if policy else None,
        "admin": admin,
        "limits": limits or None,
    }
    named = {field: value for field, value in given.items() if value is not None}
    return named | ({"expires": _time(expires)} if expires else {})


def create(place: str | None, tenant: str, fields: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints the key to standard output, and what there is to say about it elsewhere."""

    async def made(database: Database) -> tuple[Key, str]:
        return await Keys(database).create(Terms(tenant, **fields), operator())

    key, token = worked_on(place, made)
    if as_json:
        terminal.tell_json({"key": token, **_told(key)})
        return
    terminal.err().print(f"key {key.id} of tenant {key.terms.tenant}; it is shown only now:", soft_wrap=True)
    sys.stdout.write(token + "\n")


def show(place: str | None, tenant: str, *, as_json: bool) -> None:
    found = worked_on(place, lambda database: Keys(database).list(tenant))
    if as_json:
        terminal.tell_json({"keys": [_told(key) for key in found]})
        return
    if not found:
        terminal.err().print("there is no key; make one with hugginggpt keys create")
        return
    table = Table(box=None)
    for column in ("id", "state", "tenant", "name", "policy", "created", "expires", "limits"):
        table.add_column(column, no_wrap=column in {"id", "state", "created", "expires"}, overflow="fold")
    for key in found:
        table.add_row(*(one_line(cell) for cell in _cells(_told(key))))
    Console(highlight=False).print(table)


def change(place: str | None, key_id: str, fields: Mapping[str, Any], *, as_json: bool) -> None:
    """Raises Problem: nothing is named, or there is no such key that has not ended."""
    if not fields:
        raise Problem("nothing to change is named", remedy="see hugginggpt keys change --help", status=USAGE)
    key = worked_on(place, lambda database: Keys(database).change(key_id, fields, operator()))
    if as_json:
        terminal.tell_json(_told(key))
    else:
        sys.stdout.write(f"changed {key.id}\n")


def revoke(place: str | None, key_id: str) -> None:
    worked_on(place, lambda database: Keys(database).revoke(key_id, operator()))


def audit(place: str | None, *, export: bool) -> None:
    async def told(database: Database) -> None:
        async for entry in Audit(database).entries():
            sys.stdout.write((json.dumps(entry) if export else _line(entry)) + "\n")

    worked_on(place, told)


def _time(text: str) -> float | None:
    if text == "never":
        return None
    if found := _FOR.fullmatch(text):
        return time.time() + int(found[1]) * _SECONDS[found[2]]
    try:
        day = date.fromisoformat(text)
    except ValueError:
        remedy = "give 90m, 12h, 30d, a date such as 2030-01-31, or never"
        raise Problem(f"{text} is no time for a key to end", remedy=remedy, status=USAGE) from None
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def _told(key: Key) -> dict[str, Any]:
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


def _cells(told: Mapping[str, Any]) -> list[str]:
    limits = ", ".join(f"{name.replace('_', ' ')} {limit}" for name, limit in told["limits"].items())
    policy = ", ".join(filter(None, (told["policy"], "admin" if told["admin"] else "")))
    times = (told["created"][:10], (told["expires"] or "never")[:10])
    return [told["id"], told["state"], told["tenant"], told["name"], policy, *times, limits]


def _stamp(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _line(entry: Mapping[str, Any]) -> str:
    who = entry["actor"] or "someone at this machine"
    return one_line(f"{entry['at']}  {entry['tenant']}  {who}  {entry['action']}  {entry['subject']}")
