"""Cost of expert calls that report their usage."""

from typing import Any

import pytest

from protos.hugginggpt.v1 import expert_pb2
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common.errors import ModelFailed, to_status
from services.orchestrator.experts.replies import Prices
from tests.fakes import FakeExpert, card
from tests.support.expert_calls import SPEC, SimulatedRun, candidate, open_client

PRICES = Prices({"cpu": 0.01, "gpu-l4": 0.2})


class Measuring(FakeExpert):
    """An expert of which each call uses two seconds of a CPU and one of a GPU; the first calls may fail.

    Args:
        fails: number of calls that fail.
    """

    def __init__(self, fails: int = 0) -> None:
        super().__init__("fake", [card("model", SPEC.name), card("other", SPEC.name)])
        self._fails = fails

    async def Infer(self, request: expert_pb2.InferRequest, context: Any) -> expert_pb2.InferResponse:
        if self._fails:
            self._fails -= 1
            status = to_status(ModelFailed("it broke"))
            used = ("expert-used", "cpu=2.000000,gpu-l4=1.000000")
            await context.abort(status.code, status.details, (*status.trailing_metadata, used))
        reply = await super().Infer(request, context)
        reply.usage.CopyFrom(Usage(pool_seconds={"cpu": 2, "gpu-l4": 1}))
        return reply


async def test_result_has_the_cost_of_its_call() -> None:
    async with Measuring().serving() as address, open_client(prices=PRICES) as client:
        usage = (await SimulatedRun(client).infer(candidate(address))).result.usage
    assert usage.cost == pytest.approx(0.22)
    assert dict(usage.pool_seconds) == {"cpu": 2, "gpu-l4": 1}


async def test_failed_attempt_has_the_cost_of_its_call() -> None:
    async with Measuring(fails=1).serving() as address, open_client(prices=PRICES) as client:
        outcome = await SimulatedRun(client).infer(candidate(address), candidate(address, model="other"))
    (failed,) = [event.attempt_failed for event in outcome.events if event.HasField("attempt_failed")]
    assert failed.usage.cost == pytest.approx(0.22)
    assert failed.usage.elapsed.ToNanoseconds() > 0
    assert outcome.result.usage.cost == pytest.approx(0.22)


async def test_failed_result_has_the_cost_of_the_last_call() -> None:
    async with Measuring(fails=9).serving() as address, open_client(prices=PRICES) as client:
        result = (await SimulatedRun(client).infer(candidate(address))).result
    assert result.failure.reason == "MODEL_FAILED"
    assert result.usage.cost == pytest.approx(0.22)


async def test_invalid_reply_has_the_cost_of_its_call() -> None:
    async def nothing(_: expert_pb2.InferRequest) -> dict[str, Any]:
        return {}

    wrong = Measuring()
    wrong.answer = nothing
    async with wrong.serving() as address, open_client(prices=PRICES) as client:
        result = (await SimulatedRun(client).infer(candidate(address))).result
    assert result.failure.reason == "CORRUPT"
    assert result.usage.cost == pytest.approx(0.22)
