"""Calls of experts that tell what they used, and what that cost."""

from typing import Any

import pytest

from protos.hugginggpt.v1 import expert_pb2
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common.errors import ModelFailed, to_status
from services.orchestrator.pricing import Prices
from tests.fakes import FakeExpert, card
from tests.support.expert_calls import SPEC, Asker, asking, candidate

PRICES = Prices({"cpu": 0.01, "gpu-l4": 0.2})


class Measuring(FakeExpert):
    """Every call takes two seconds of a CPU and one of a GPU; the first of them may fail.

    Args:
        fails: how many of its calls do.
    """

    def __init__(self, fails: int = 0) -> None:
        super().__init__("fake", [card("model", SPEC.name), card("other", SPEC.name)])
        self._fails = fails

    async def Infer(self, request: expert_pb2.InferRequest, context: Any) -> expert_pb2.InferResponse:
        if self._fails:
            self._fails -= 1
            status = to_status(ModelFailed("it broke"))
            told = ("expert-used", "cpu=2.000000,gpu-l4=1.000000")
            await context.abort(status.code, status.details, (*status.trailing_metadata, told))
        reply = await super().Infer(request, context)
        reply.usage.CopyFrom(Usage(pool_seconds={"cpu": 2, "gpu-l4": 1}))
        return reply


async def test_a_result_says_what_it_cost() -> None:
    async with Measuring().serving() as address, asking(prices=PRICES) as attempts:
        usage = (await Asker(attempts).infer(candidate(address))).result.usage
    assert usage.cost == pytest.approx(0.22)
    assert dict(usage.pool_seconds) == {"cpu": 2, "gpu-l4": 1}


async def test_an_attempt_that_failed_costs_what_it_used() -> None:
    async with Measuring(fails=1).serving() as address, asking(prices=PRICES) as attempts:
        asked = await Asker(attempts).infer(candidate(address), candidate(address, model="other"))
    (failed,) = [event.attempt_failed for event in asked.events if event.HasField("attempt_failed")]
    assert failed.usage.cost == pytest.approx(0.22)
    assert failed.usage.elapsed.ToNanoseconds() > 0
    assert asked.result.usage.cost == pytest.approx(0.22)


async def test_the_last_attempt_costs_what_it_used_though_it_failed() -> None:
    async with Measuring(fails=9).serving() as address, asking(prices=PRICES) as attempts:
        result = (await Asker(attempts).infer(candidate(address))).result
    assert result.failure.reason == "MODEL_FAILED"
    assert result.usage.cost == pytest.approx(0.22)


async def test_a_reply_that_is_none_costs_what_it_used() -> None:
    async def nothing(_: expert_pb2.InferRequest) -> dict[str, Any]:
        return {}

    wrong = Measuring()
    wrong.answer = nothing
    async with wrong.serving() as address, asking(prices=PRICES) as attempts:
        result = (await Asker(attempts).infer(candidate(address))).result
    assert result.failure.reason == "CORRUPT"
    assert result.usage.cost == pytest.approx(0.22)
