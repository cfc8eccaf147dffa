"""An expert tells what its calls used."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from experts.host.handler import Inputs, Outputs, Parameters
from tests.support.crashing_model import HARD_SECONDS, asking, crashing
from tests.support.expert_host import SERVING, Start, does, hosts

ROUNDS = 300_000


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    async with hosts(tmp_path) as start:
        yield start


def _computed(inputs: Inputs, parameters: Parameters) -> Outputs:
    return {"text": str(sum(range(ROUNDS)))}


def _broken(inputs: Inputs, parameters: Parameters) -> Outputs:
    raise RuntimeError(sum(range(ROUNDS)))


async def test_a_call_says_how_many_seconds_of_the_cpu_it_used(start: Start) -> None:
    host = await start(does(_computed))
    await host.until(SERVING)
    usage = (await host.infer(model="m")).usage
    assert list(usage.pool_seconds) == ["cpu"]
    assert 0.001 < usage.pool_seconds["cpu"] < 10


async def test_a_worker_process_counts_as_its_expert_does(start: Start) -> None:
    host = await start(crashing, preload=["m"], workers="process")
    await host.until(SERVING, "m")
    usage = (await host.infer("hard", model="m")).usage
    assert list(usage.pool_seconds) == ["cpu"]
    assert usage.pool_seconds["cpu"] >= 0.9 * HARD_SECONDS


async def test_a_call_that_fails_says_what_it_used_in_its_trailer(start: Start) -> None:
    host = await start(does(_broken))
    await host.until(SERVING)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await host.infer(model="m")
    told = dict(caught.value.trailing_metadata() or ())["expert-used"]
    assert isinstance(told, str)
    pool, _, seconds = told.partition("=")
    assert pool == "cpu"
    assert float(seconds) > 0.001


async def test_a_model_elsewhere_uses_its_own_pool_while_it_is_waited_for(start: Start) -> None:
    host = await start(asking, pool="inference-endpoint")
    await host.until(SERVING)
    usage = (await host.infer(model="m")).usage
    assert set(usage.pool_seconds) == {"cpu", "inference-endpoint"}
