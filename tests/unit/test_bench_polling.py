"""The arithmetic of the first HuggingGPT's scheduling gives what was measured of it."""

from dataclasses import replace

import pytest

from tests.bench.peers.makespan import JARVIS
from tests.bench.peers.polling import lasts
from tests.bench.shapes import Script

DEEP = ("single", "chain_4", "diamond", "chain_8")
"""Shapes in which no more than two tasks run at once: with more, its probing shows, which is no part of the rule."""


@pytest.mark.parametrize("shape", DEEP)
def test_it_gives_the_published_medians_of_runs_whose_models_an_llm_selects(shape: str) -> None:
    script, published, _ = JARVIS[shape]
    assert lasts(script) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("shape", DEEP)
def test_it_gives_the_published_medians_of_runs_without_selection(shape: str) -> None:
    script, _, published = JARVIS[shape]
    assert lasts(replace(script, select=0.0)) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("shape", ["wide_4", "wide_8"])
def test_of_tasks_side_by_side_it_has_less_than_was_published(shape: str) -> None:
    script, published, without = JARVIS[shape]
    assert 0.85 * published < lasts(script) <= published
    assert 0.85 * without < lasts(replace(script, select=0.0)) <= without


@pytest.mark.parametrize(
    ("expert", "published"), [(0.05, 2.481), (0.10, 2.527), (0.15, 2.583), (0.18, 2.610), (0.25, 4.178), (0.75, 6.182)]
)
def test_it_gives_the_published_sweep_over_the_experts_time(expert: float, published: float) -> None:
    chain = Script("chain", 4, plan=0.3, select=0.3, expert=expert, answer=0.3)
    assert lasts(chain) == pytest.approx(published, rel=0.01)
