"""Costs of 1,000 items, as the benchmark calculates them."""

import pytest

from protos.hugginggpt.v1.plan_pb2 import Plan
from services.llm.settings import Price
from tests.bench.costs import IMAGE_TOKENS, ResourceUsage, Workload, cost_rows
from tests.bench.rows import Row

USAGE = ResourceUsage(items=10, pools={"cpu": 0.9, "gpu-l4": 0.2}, orchestrator=0.1)
PRICES = {"cpu": 0.01, "gpu-l4": 0.1}
LLM = ("big", Price(input=1.0, output=10.0))


def work(limitation: str = "") -> Workload:
    return Workload("reading", Plan(), [{"image": b"png"}], "What?", "words", limitation)


def rows(
    usage: ResourceUsage | None = USAGE, prices: dict[str, float] | None = None, llm: tuple[str, Price] | None = LLM
) -> dict[str, Row]:
    computed = cost_rows(work(), usage, PRICES if prices is None else prices, llm)
    return {row.id.removeprefix("costs.reading_"): row for row in computed}


def test_seconds_are_per_thousand_items_and_include_the_orchestrator() -> None:
    measured = rows()
    assert measured["cpu_seconds"].value == 100
    assert measured["gpu-l4_seconds"].value == 20


def test_cost_is_seconds_times_price_with_the_llm_as_reference() -> None:
    cost, llm = rows()["cost"], rows()["llm_cost"]
    assert cost.value == pytest.approx(100 * 0.01 + 20 * 0.1)
    assert cost.reference == llm.value
    read = work().input_tokens
    assert read > IMAGE_TOKENS
    assert llm.value == pytest.approx((read * 1000 * 1.0 + work().output_tokens * 1000 * 10.0) / 1e6, rel=0.01)


@pytest.mark.parametrize("prices", [{}, {"cpu": 0.01}])
def test_cost_is_a_gap_without_a_price_for_every_pool(
    prices: dict[str, float],
) -> None:
    measured = rows(prices=prices)
    assert measured["cost"].value is None
    assert "no price configured" in measured["cost"].note
    assert "gpu-l4" in measured["cost"].note
    assert measured["cpu_seconds"].value == 100


def test_llm_cost_is_a_gap_without_a_price() -> None:
    measured = rows(llm=None)
    assert measured["llm_cost"].value is None
    assert measured["cost"].reference is None
    assert measured["llm_tokens"].value


def test_unmeasured_usage_is_a_gap() -> None:
    measured = rows(usage=None)
    assert measured["cpu_seconds"].value is None
    assert measured["cost"].value is None


def test_notes_state_the_limitation_of_the_llm() -> None:
    notes = [row.note for row in cost_rows(work("it does not speak"), USAGE, PRICES, LLM)]
    assert sum("it does not speak" in note for note in notes) == 2
