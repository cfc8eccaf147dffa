"""Usage of calls, as reported by an expert."""

import grpc
import pytest

from experts.host.handler import Inputs, Outputs, Parameters
from tests.support.crashing_model import HARD_SECONDS, load_crashing, load_remote
from tests.support.expert_host import SERVING, Start, loader_of

ROUNDS = 300_000


def _computed(inputs: Inputs, parameters: Parameters) -> Outputs:
    return {"text": str(sum(range(ROUNDS)))}


def _broken(inputs: Inputs, parameters: Parameters) -> Outputs:
    raise RuntimeError(sum(range(ROUNDS)))


async def test_usage_contains_cpu_seconds(start_host: Start) -> None:
    host = await start_host(loader_of(_computed))
    await host.until(SERVING)
    usage = (await host.infer(model="m")).usage
    assert list(usage.pool_seconds) == ["cpu"]
    assert 0.001 < usage.pool_seconds["cpu"] < 10


async def test_usage_includes_the_worker_process(start_host: Start) -> None:
    host = await start_host(load_crashing, preload=["m"], workers="process")
    await host.until(SERVING, "m")
    usage = (await host.infer("hard", model="m")).usage
    assert list(usage.pool_seconds) == ["cpu"]
    assert usage.pool_seconds["cpu"] >= 0.9 * HARD_SECONDS


async def test_failed_call_has_usage_in_its_trailing_metadata(start_host: Start) -> None:
    host = await start_host(loader_of(_broken))
    await host.until(SERVING)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await host.infer(model="m")
    reported = dict(caught.value.trailing_metadata() or ())["expert-used"]
    assert isinstance(reported, str)
    pool, _, seconds = reported.partition("=")
    assert pool == "cpu"
    assert float(seconds) > 0.001


async def test_remote_model_is_charged_to_its_own_pool(start_host: Start) -> None:
    host = await start_host(load_remote, pool="inference-endpoint")
    await host.until(SERVING)
    usage = (await host.infer(model="m")).usage
    assert set(usage.pool_seconds) == {"cpu", "inference-endpoint"}
