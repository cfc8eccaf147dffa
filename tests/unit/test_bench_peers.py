"""Of a server beside ours, all processes count, and a peer that is not there leaves gaps."""

import os

import pytest

from tests.bench.expert_callers import Asker
from tests.bench.peers import measuring
from tests.bench.peers.families import descendants, family
from tests.bench.processes import Running


def test_a_family_is_the_first_process_with_all_below_it() -> None:
    assert descendants({2: 1, 3: 2, 4: 9, 5: 3, 6: 2}, 2) == [2, 3, 6, 5]
    assert descendants({2: 1}, 7) == [7]


def test_this_process_is_of_its_own_family() -> None:
    assert family(os.getpid())[0] == os.getpid()


async def test_a_rival_that_is_not_installed_leaves_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "find_spec", lambda _: None)
    rows = await measuring._tried(Asker.__new__(Asker), Running(1, ""), "ray")
    assert [row.verdict for row in rows] == ["not measured"] * 3
    assert all("peers" in row.note for row in rows)
