"""Metering of CPU and device time by call."""

import subprocess
import sys
import threading
from subprocess import PIPE

import pytest

from experts.host import metering
from experts.host.active_calls import ActiveCalls, BatchCall
from experts.host.metering import Meter, Pool, Pools, cpus, format_usage, gpu_name

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class RecordedUsage:
    def __init__(self) -> None:
        self.used: dict[str, float] = {}

    def add_usage(self, pool: str, seconds: float) -> None:
        self.used[pool] = seconds


def test_single_use_is_charged_all_elapsed_time() -> None:
    clock = Clock()
    meter = Meter(clock)
    clock.now += 5
    start = meter.begin()
    clock.now += 2
    assert meter.end(start) == 2


def test_concurrent_uses_share_the_elapsed_time() -> None:
    clock = Clock()
    meter = Meter(clock)
    first = meter.begin()
    clock.now += 1
    second = meter.begin()
    clock.now += 4
    used = [meter.end(first)]
    clock.now += 3
    used.append(meter.end(second))
    assert used == [3, 5]
    assert sum(used) == 8


def test_clock_that_goes_back_is_not_charged() -> None:
    clock = Clock()
    meter = Meter(clock)
    start = meter.begin()
    clock.now -= 1
    assert meter.end(start) == 0


def test_temporary_drop_of_the_clock_is_not_charged_twice() -> None:
    clock = Clock()
    meter = Meter(clock)
    first, clock.now = meter.begin(), 1.0
    second, clock.now = meter.begin(), 100.5
    assert meter.end(first) + meter.end(second) == pytest.approx(0.5)


async def test_calls_of_a_batch_share_its_usage_and_sum_it_by_pool() -> None:
    calls = ActiveCalls()
    with calls.track("tenant", "") as one, calls.track("tenant", "") as other:
        one.add_usage("cpu", 1.0)
        BatchCall([one, other]).add_usage("cpu", 3.0)
        BatchCall([one, other]).add_usage("gpu-l4", 0.5)
        assert one.used == {"cpu": 2.5, "gpu-l4": 0.25}
        assert other.used == {"cpu": 1.5, "gpu-l4": 0.25}


def test_failed_block_is_charged() -> None:
    clock, call = Clock(), RecordedUsage()
    with pytest.raises(RuntimeError), Pool("gpu-l4", Meter(clock)).charge(call):
        clock.now += 2
        raise RuntimeError
    assert call.used == {"gpu-l4": 2}


def test_threads_and_child_processes_count_as_cpu_seconds() -> None:
    call = RecordedUsage()
    with cpus().charge(call):
        thread = threading.Thread(target=lambda: sum(range(3_000_000)))
        thread.start()
        thread.join()
        subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert call.used["cpu"] > 0.3


def test_watched_process_counts_while_it_runs() -> None:
    call = RecordedUsage()
    with subprocess.Popen(
        [sys.executable, "-c", f"{BUSY}print(flush=True)\ninput()"], stdin=PIPE, stdout=PIPE
    ) as child:
        metering.watch(child.pid)
        with cpus().charge(call):
            assert child.stdout
            child.stdout.readline()
        child.communicate(b"\n")
        metering.forget(child.pid)
    assert call.used["cpu"] > 0.1


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA L4", "gpu-l4"),
        ("Tesla T4", "gpu-t4"),
        ("NVIDIA A100-SXM4-80GB", "gpu-a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "gpu-rtx-4090"),
    ],
)
def test_gpu_pool_is_named_after_the_product(product: str, name: str) -> None:
    assert gpu_name(product) == name


def test_device_has_one_pool_and_the_cpu_has_none() -> None:
    pools = Pools()
    one, other = (pools.of("cuda:0", lambda _: "NVIDIA L4") for _ in range(2))
    assert one is other
    assert one
    assert one.name == "gpu-l4"
    assert pools.of("cpu", str) is None
    assert pools.remote.name == "remote"


def test_configured_pool_name_applies_to_gpu_and_remote() -> None:
    pools = Pools("small")
    gpu = pools.of("cuda:0", lambda _: "NVIDIA L4")
    assert gpu
    assert {gpu.name, pools.remote.name} == {"small"}


def test_usage_is_formatted_by_pool() -> None:
    assert format_usage({"cpu": 0.125, "gpu-l4": 0.05}) == "cpu=0.125000,gpu-l4=0.050000"
    assert not format_usage({})
