"""Process trees of compared servers, and the rows of a server that is not installed."""

import os

import pytest

from tests.bench.expert_callers import ExpertCaller
from tests.bench.peers import servers
from tests.bench.peers.process_tree import descendants, process_tree
from tests.bench.processes import Running


def test_descendants_include_all_levels() -> None:
    assert descendants({2: 1, 3: 2, 4: 9, 5: 3, 6: 2}, 2) == [2, 3, 6, 5]
    assert descendants({2: 1}, 7) == [7]


def test_process_tree_starts_with_its_root() -> None:
    assert process_tree(os.getpid())[0] == os.getpid()


async def test_server_that_is_not_installed_has_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_spec", lambda _: None)
    rows = await servers.server_rows(ExpertCaller.__new__(ExpertCaller), Running(1, ""), "ray")
    assert [row.verdict for row in rows] == ["not measured"] * 3
    assert all("peers" in row.note for row in rows)
