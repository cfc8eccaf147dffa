"""Cost of seconds in priced pools."""

import math
from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from pydantic import ValidationError
from structlog.testing import capture_logs

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1 import event_pb2, plan_pb2, run_pb2, task_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import Run
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.orchestrator.experts.replies import MAX_REPORTED, Prices, pool_seconds
from services.orchestrator.runs.result import total_usage
from services.orchestrator.settings import Settings

PRICES = {"cpu": 0.01, "gpu-l4": 0.2}


def charge(prices: Prices, **pools: float) -> Usage:
    usage = Usage(pool_seconds={name.replace("_", "-"): seconds for name, seconds in pools.items()})
    prices.charge(usage, "summarization", "model")
    return usage


def test_cost_is_the_sum_over_all_pools() -> None:
    assert charge(Prices(PRICES), cpu=2, gpu_l4=0.5).cost == pytest.approx(0.02 + 0.1)


def test_cost_reported_by_the_expert_is_included() -> None:
    usage = Usage(cost=1, pool_seconds={"cpu": 1})
    Prices(PRICES).charge(usage, "summarization", "model")
    assert usage.cost == pytest.approx(1.01)


def test_pool_without_a_price_costs_nothing_and_is_logged_once() -> None:
    prices = Prices(PRICES)
    with capture_logs() as logs:
        assert charge(prices, cpu=1, gpu_t4=5).cost == pytest.approx(0.01)
        charge(prices, gpu_t4=5)
    assert [(each["pool"], each["remedy"]) for each in logs] == [("gpu-t4", "add it to ORCHESTRATOR_PRICES")]


def test_nothing_is_logged_without_a_price_table() -> None:
    with capture_logs() as logs:
        assert not charge(Prices({}), cpu=1).cost
    assert not logs


def test_invented_pools_are_logged_up_to_a_limit() -> None:
    prices = Prices(PRICES)
    with capture_logs() as logs:
        for number in range(MAX_REPORTED + 10):
            charge(prices, **{f"pool{number}": 1})
    assert len(logs) == MAX_REPORTED


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_invalid_seconds_cost_nothing_and_are_removed(seconds: float) -> None:
    usage = charge(Prices(PRICES), cpu=seconds, gpu_l4=1)
    assert usage.cost == pytest.approx(0.2)
    assert list(usage.pool_seconds) == ["gpu-l4"]


@pytest.mark.parametrize(
    "reported",
    [
        Usage(cost=math.nan),
        Usage(cost=-1),
        Usage(cost=math.inf),
        Usage(busy=Duration(seconds=10**18)),
        Usage(busy=Duration(seconds=-5)),
        Usage(input_tokens=2**63 - 1),
        Usage(output_tokens=-(2**63)),
        Usage(pool_seconds={"cpu": 1e300}),
    ],
)
def test_usage_out_of_range_is_removed_from_totals(reported: Usage) -> None:
    prices = Prices(PRICES)
    prices.charge(reported, "summarization", "model")
    run = Run(tasks=[run_pb2.TaskStatus(result=run_pb2.TaskResult(usage=reported)) for _ in range(3)])
    run.create_time.GetCurrentTime()
    whole = total_usage(run, [], [])
    assert whole.cost == 0
    assert whole.input_tokens == 0
    assert whole.output_tokens == 0
    assert dict(whole.pool_seconds) == {}
    assert whole.busy.ToTimedelta() == timedelta()


@pytest.mark.parametrize("table", [{}, PRICES])
def test_invalid_pool_name_is_removed(table: dict[str, float]) -> None:
    usage = Usage(pool_seconds={"Dear reader": 1, "cpu": 1})
    Prices(table).charge(usage, "summarization", "model")
    assert list(usage.pool_seconds) == ["cpu"]


@pytest.mark.parametrize(
    ("reported", "seconds"),
    [
        ("cpu=0.125000,gpu-l4=0.050000", {"cpu": 0.125, "gpu-l4": 0.05}),
        ("", {}),
        ("cpu=-1", {}),
        ("cpu=inf", {}),
        (",".join(f"p{number}=1" for number in range(20)), {f"p{number}": 1.0 for number in range(8)}),
    ],
)
def test_seconds_of_a_failed_call_are_read_from_its_trailer(reported: str, seconds: dict[str, float]) -> None:
    assert pool_seconds([("expert-queue", "0"), ("expert-used", reported)]) == seconds


def test_trailer_without_seconds_reports_no_pools() -> None:
    assert not pool_seconds([("expert-queue", "0"), ("expert-used-bin", b"cpu=1")])


def test_cost_of_a_run_includes_tasks_decisions_and_failed_attempts() -> None:
    failed = event_pb2.AttemptFailed(usage=Usage(cost=0.5, pool_seconds={"gpu-l4": 2}))
    fold = RunFold()
    fold.apply(RunEvent(task_planned=event_pb2.TaskPlanned(task=task_pb2.Task(id=1)), task_id=1))
    fold.apply(RunEvent(attempt_failed=failed, task_id=1))
    fold.apply(RunEvent(attempt_failed=event_pb2.AttemptFailed(), task_id=1))
    run = Run(tasks=[run_pb2.TaskStatus(result=run_pb2.TaskResult(usage=Usage(cost=1, pool_seconds={"cpu": 1})))])
    whole = total_usage(run, [plan_pb2.Decision(usage=Usage(cost=2, input_tokens=7))], fold.failed_usage)
    assert whole.cost == 3.5
    assert whole.input_tokens == 7
    assert dict(whole.pool_seconds) == {"cpu": 1, "gpu-l4": 2}
    assert whole.busy.ToTimedelta() == timedelta()


def test_prices_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_PRICES", '{"cpu": 0.00001, "gpu-l4": 0.0002}')
    assert Settings().prices == {"cpu": 0.00001, "gpu-l4": 0.0002}


@pytest.mark.parametrize("price", ["-1", "Infinity", '"much"'])
def test_invalid_price_is_rejected(price: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_PRICES", f'{{"cpu": {price}}}')
    with pytest.raises(ValidationError, match="cpu"):
        Settings()
