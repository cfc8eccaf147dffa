"""Versions of schemas: the n-th script leads from version n to n + 1, and scripts once released never change.

Expand first, contract a version later: a script adds what the program of its version needs, and what it takes away is
what the program before has already stopped using. So a program also runs on a schema that is one version newer than
its own, while its successors start beside it; statements name their columns, since there may be more.
"""

from collections.abc import Sequence

from services.common.errors import FailedPrecondition

VERSIONS = "CREATE TABLE IF NOT EXISTS schemas (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
VERSION = "SELECT version FROM schemas WHERE name = ?"
MIGRATED = "INSERT INTO schemas VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version"


def to_run(version: int, place: str, schema: str, migrations: Sequence[str]) -> list[str]:
    """The statements that lead from a version to this program's.

    Raises:
        FailedPrecondition: NEWER_SCHEMA, a later version of this program has written it.
    """
    if version > len(migrations) + 1:
        raise FailedPrecondition(
            f"{place} has version {version} of schema {schema}; this program knows {len(migrations)}",
            reason="NEWER_SCHEMA",
            remedy="run the newer program, or restore a copy made before it",
        )
    return [statement for script in migrations[version:] for statement in script.split(";")]
