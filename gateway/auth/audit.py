"""What was done that others may have to answer for: entries that are only ever added."""

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
    f"""CREATE TRIGGER IF NOT EXISTS audit_keeps_{act} BEFORE {act} ON audit
    BEGIN SELECT RAISE(ABORT, 'it only grows'); END"""
    for act in ("UPDATE", "DELETE")
]
_SEAL_POSTGRES = [
    """CREATE OR REPLACE FUNCTION audit_only_grows() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'it only grows'; END $$""",
    """CREATE OR REPLACE TRIGGER audit_keeps BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_only_grows()""",
]


@dataclass(frozen=True)
class Actor:
    """Who does something."""

    tenant: str
    name: str
    """The public id of a key, or operator:USER at the machine itself; empty without authentication."""
    request_id: str = ""


def actor() -> Actor:
    """Whoever the request being served comes from."""
    who = identity.current()
    return Actor(who.tenant, who.key_id, current().request_id)


class Audit:
    """The log of administrative acts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, action: str, subject: str, **details: Any) -> None:
        """Writes down that the current identity does something; call it before it is done.

        So nothing is done without an entry; one may stand for what then failed.

        Args:
            action: such as run.delete.
            subject: the id of what it is done to.
            details: more about it, never content.

        Raises:
            Unavailable: the database does not answer.
        """
        entry = recorded(self._database, actor(), action, subject, details)

        def operation() -> Steps[Rows]:
            return (yield entry)

        await self._database.write(operation)

    async def entries(self) -> AsyncIterator[dict[str, Any]]:
        """All entries, the oldest first, as JSON has them."""
        last = 0
        page: Sequence[Sequence[Any]] = ((),)
        while page:
            select = f"SELECT {_COLUMNS} FROM audit WHERE id > ? ORDER BY id LIMIT {_PAGE}"  # noqa: S608  # constants
            page = await self._database.read(select, last)
            for row in page:
                last = row[0]
                yield _entry(row)


def recorded(database: Database, who: Actor, action: str, subject: str, details: dict[str, Any]) -> Query:
    """An entry, to be written in the transaction that does what it says."""
    sql = (
        "INSERT INTO audit (at, tenant, actor, request_id, action, subject, details) "  # noqa: S608  # of constants
        f"VALUES ({database.dialect.now}, ?, ?, ?, ?, ?, ?)"
    )
    return Query(sql, (who.tenant, who.name, who.request_id, action, subject, json.dumps(details, sort_keys=True)))


async def seal(database: Database) -> None:
    """Has the database itself refuse to change or remove entries, whoever asks."""
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
