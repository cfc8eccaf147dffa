"""What unit tests of the orchestrator ask for."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.orchestrator.tables import MIGRATIONS, SCHEMA
from services.runtime.database import Database, opened
from tests.stages import Stages


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """An empty journal's database."""
    async with opened(tmp_path / "journal.sqlite", SCHEMA, MIGRATIONS) as kept:
        yield kept


@pytest.fixture
def stages() -> Stages:
    """A pipeline whose stages each test sets."""
    return Stages()
