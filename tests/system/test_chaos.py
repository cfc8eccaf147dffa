"""A short fault campaign; `make chaos` runs the complete one."""

from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign
from tests.chaos.databases import BACKENDS

pytestmark = pytest.mark.slow

SEED = 2027
RUNS = 40


@pytest.mark.parametrize("backend", list(BACKENDS))
async def test_runs_end_correctly_during_fault_campaign(backend: str, tmp_path: Path) -> None:
    async with BACKENDS[backend](tmp_path) as store:
        outcome = await Campaign(SEED, RUNS, backend, store, tmp_path).run()
    assert outcome.violations == []
    assert outcome.tally["runs"] == RUNS
    assert outcome.tally["taken over"]
