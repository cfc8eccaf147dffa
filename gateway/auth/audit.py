"""Append-only audit log of administrative actions."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.auth import identity
from services.common.call_context import current
from services.common.database import Database, Query, Rows, Steps, sqlite

_COLUMNS = "id, at, tenant, actor, request_id, action, subject, details"
_PAGE = 500

_SEAL_SQLITE = [
    f"""CREATE TRIGGER IF NOT EXISTS audit_forbids_{act} BEFORE {act} ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"""
    for act in ("UPDATE", "DELETE")
]
_SEAL_POSTGRES = [
    """CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$""",
    """CREATE OR REPLACE TRIGGER audit_forbids_changes BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only()""",
]


@dataclass(frozen=True)
class Actor:
    """The identity that performs an action."""

    tenant: str
    name: str
    """Public id of the API key, or operator:USER for the command line on the server; empty without authentication."""
    request_id: str = ""


def current_actor() -> Actor:
    """Returns the actor of the request being served."""
    by = identity.current()
    return Actor(by.tenant, by.key_id, current().request_id)


class Audit:
    """Audit log of the gateway's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, action: str, subject: str, **details: Any) -> None:
        """Records an action of the current identity; call it before the action.

        No action happens without an entry; an entry may exist for an action that then failed.

        Args:
            action: name of the action, such as run.delete.
            subject: id of the object of the action.
            details: further facts, without content.

        Raises:
            Unavailable: the database is unavailable.
        """
        entry = audit_query(self._database, current_actor(), action, subject, details)

        def operation() -> Steps[Rows]:
            return (yield entry)

        await self._database.write(operation)

    async def entries(self) -> AsyncIterator[dict[str, Any]]:
        """Iterates over all entries, oldest first, as JSON objects."""
        last = 0
        page: Sequence[Sequence[Any]] = ((),)
        while page:
            select = f"SELECT {_COLUMNS} FROM audit WHERE id > ? ORDER BY id LIMIT {_PAGE}"  # noqa: S608  # constants
            page = await self._database.read(select, last)
            for row in page:
                last = row[0]
                yield _entry(row)


def audit_query(database: Database, by: Actor, action: str, subject: str, details: dict[str, Any]) -> Query:
    """Returns the statement that adds an entry, to run in the transaction of the action."""
    sql = (
        "INSERT INTO audit (at, tenant, actor, request_id, action, subject, details) "  # noqa: S608  # of constants
        f"VALUES ({database.dialect.now}, ?, ?, ?, ?, ?, ?)"
    )
    return Query(sql, (by.tenant, by.name, by.request_id, action, subject, json.dumps(details, sort_keys=True)))


async def forbid_audit_changes(database: Database) -> None:
    """Installs database triggers that reject every change or deletion of entries."""
    statements = _SEAL_SQLITE if database.dialect is sqlite.DIALECT else _SEAL_POSTGRES

    def operation() -> Steps[None]:
        yield Query(database.dialect.lock, ("seal audit",))
        for statement in statements:
            yield Query(statement)

    await database.write(operation)


def _entry(row: Sequence[Any]) -> dict[str, Any]:
    names = _COLUMNS.split(", ")
    entry = dict(zip(names, row, strict=True))
    at = datetime.fromtimestamp(entry["at"], UTC).isoformat(timespec="milliseconds")
    return {**entry, "at": at.replace("+00:00", "Z"), "details": json.loads(entry["details"])}
