"""The calculated duration of a run in the original HuggingGPT agrees with its published measurements."""

from dataclasses import replace

import pytest

from tests.bench.peers.jarvis import jarvis_seconds
from tests.bench.peers.makespan import JARVIS
from tests.bench.shapes import Script

DEEP = ("single", "chain_4", "diamond", "chain_8")
"""Shapes with at most two concurrent tasks: with more, JARVIS' probing of models counts, which is not calculated."""


@pytest.mark.parametrize("shape", DEEP)
def test_calculation_gives_the_published_medians_with_llm_selection(shape: str) -> None:
    script, published, _ = JARVIS[shape]
    assert jarvis_seconds(script) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("shape", DEEP)
def test_calculation_gives_the_published_medians_without_selection(shape: str) -> None:
    script, _, published = JARVIS[shape]
    assert jarvis_seconds(replace(script, select=0.0)) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("shape", ["wide_4", "wide_8"])
def test_calculation_is_below_the_published_medians_for_concurrent_tasks(shape: str) -> None:
    script, published, without = JARVIS[shape]
    assert 0.85 * published < jarvis_seconds(script) <= published
    assert 0.85 * without < jarvis_seconds(replace(script, select=0.0)) <= without


@pytest.mark.parametrize(
    ("expert", "published"), [(0.05, 2.481), (0.10, 2.527), (0.15, 2.583), (0.18, 2.610), (0.25, 4.178), (0.75, 6.182)]
)
def test_calculation_gives_the_published_sweep_over_expert_time(expert: float, published: float) -> None:
    chain = Script("chain", 4, plan=0.3, select=0.3, expert=expert, answer=0.3)
    assert jarvis_seconds(chain) == pytest.approx(published, rel=0.01)
