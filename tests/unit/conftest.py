"""Fixtures of unit tests: an empty database in SQLite and in PostgreSQL, and a pipeline with scripted stages."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.common.database import Database, open_database
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from tests.support.postgres import emptied_database
from tests.support.run_stages import Stages


@pytest.fixture(params=["sqlite", "postgres"])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Path or URL of an empty database: SQLite and PostgreSQL in turn."""
    if request.param == "sqlite":
        return str(tmp_path / "journal.sqlite")
    return await emptied_database(request.getfixturevalue("postgres"))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Database of an empty journal: SQLite and PostgreSQL in turn."""
    async with open_database(database_url, SCHEMA, MIGRATIONS) as opened_database:
        yield opened_database


@pytest.fixture
def stages() -> Stages:
    """Stages of a run that each test scripts."""
    return Stages()
