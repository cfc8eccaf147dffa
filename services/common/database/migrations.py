"""Schema versions: the n-th script migrates from version n to n + 1. Released scripts never change.

Schema changes are backward compatible by one version (expand, then contract): a script may remove only what the
previous release no longer uses. Therefore a program also runs on a schema one version newer than its own, as during a
rolling upgrade; its statements name their columns, since there may be more.
"""

from collections.abc import Sequence

from services.common.errors import FailedPrecondition

CREATE_VERSIONS = "CREATE TABLE IF NOT EXISTS schemas (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
SELECT_VERSION = "SELECT version FROM schemas WHERE name = ?"
SET_VERSION = "INSERT INTO schemas VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version"


def pending_statements(version: int, database: str, schema: str, migrations: Sequence[str]) -> list[str]:
    """The statements that migrate a schema from a version to this program's.

    Raises:
        FailedPrecondition: NEWER_SCHEMA, the schema is more than one version newer than this program's.
    """
    if version > len(migrations) + 1:
        raise FailedPrecondition(
            f"{database} has version {version} of schema {schema}; this program supports {len(migrations)}",
            reason="NEWER_SCHEMA",
            remedy="run the newer program, or restore a backup made before the upgrade",
        )
    return [statement for script in migrations[version:] for statement in script.split(";")]
