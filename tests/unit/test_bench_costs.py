"""What 1,000 items cost, as the benchmark reckons it."""

import pytest

from protos.hugginggpt.v1.plan_pb2 import Plan
from services.llm.settings import Price
from tests.bench.costs import IMAGE_TOKENS, Took, Work, told
from tests.bench.rows import Row

TOOK = Took(items=10, pools={"cpu": 0.9, "gpu-l4": 0.2}, own=0.1)
PRICES = {"cpu": 0.01, "gpu-l4": 0.1}
LLM = ("big", Price(input=1.0, output=10.0))


def work(without: str = "") -> Work:
    return Work("reading", Plan(), [{"image": b"png"}], "What?", "words", without)


def rows(
    took: Took | None = TOOK, prices: dict[str, float] | None = None, llm: tuple[str, Price] | None = LLM
) -> dict[str, Row]:
    told_rows = told(work(), took, PRICES if prices is None else prices, llm)
    return {row.id.removeprefix("costs.reading_"): row for row in told_rows}


def test_seconds_are_those_of_a_thousand_items_and_the_orchestrators_are_cpu_seconds() -> None:
    measured = rows()
    assert (measured["cpu_seconds"].value, measured["gpu-l4_seconds"].value) == (100, 20)


def test_a_pipeline_costs_its_seconds_and_stands_beside_the_llm() -> None:
    cost, llm = rows()["cost"], rows()["llm_cost"]
    assert cost.value == pytest.approx(100 * 0.01 + 20 * 0.1)
    assert cost.reference == llm.value
    read = work().input_tokens
    assert read > IMAGE_TOKENS
    assert llm.value == pytest.approx((read * 1000 * 1.0 + work().output_tokens * 1000 * 10.0) / 1e6, rel=0.01)


@pytest.mark.parametrize("prices", [{}, {"cpu": 0.01}])
def test_without_a_price_for_every_pool_there_is_a_gap_and_seconds_are_told_all_the_same(
    prices: dict[str, float],
) -> None:
    measured = rows(prices=prices)
    assert measured["cost"].value is None
    assert "no price entered" in measured["cost"].note
    assert "gpu-l4" in measured["cost"].note
    assert measured["cpu_seconds"].value == 100


def test_without_a_price_of_an_llm_nothing_is_compared_and_tokens_are_told_all_the_same() -> None:
    measured = rows(llm=None)
    assert measured["llm_cost"].value is None
    assert measured["cost"].reference is None
    assert measured["llm_tokens"].value


def test_what_could_not_be_measured_is_a_gap() -> None:
    measured = rows(took=None)
    assert (measured["cpu_seconds"].value, measured["cost"].value) == (None, None)


def test_what_an_llm_leaves_undone_is_said() -> None:
    notes = [row.note for row in told(work("it does not speak"), TOOK, PRICES, LLM)]
    assert sum("it does not speak" in note for note in notes) == 2
