"""What unit tests of the orchestrator ask for."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.common.database import Database, open_database
from services.orchestrator.journal.tables import MIGRATIONS, SCHEMA
from tests.support.postgres import emptied
from tests.support.run_stages import Stages


@pytest.fixture(params=["sqlite", "postgres"])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database, of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "journal.sqlite")
    return await emptied(request.getfixturevalue("postgres"))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An empty journal's database, of either kind."""
    async with open_database(database_url, SCHEMA, MIGRATIONS) as kept:
        yield kept


@pytest.fixture
def stages() -> Stages:
    """A pipeline whose stages each test sets."""
    return Stages()
