"""What calls use of CPUs and devices."""

import subprocess
import sys
import threading
from subprocess import PIPE

import pytest

from experts.host import metering
from experts.host.active_calls import CallsUnderWay, Together
from experts.host.metering import Meter, Pool, Pools, cpus, gpu_name, written

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class User:
    def __init__(self) -> None:
        self.used: dict[str, float] = {}

    def uses(self, pool: str, seconds: float) -> None:
        self.used[pool] = seconds


def test_who_works_alone_uses_all_that_goes_by() -> None:
    clock = Clock()
    meter = Meter(clock)
    clock.now += 5
    begun = meter.begin()
    clock.now += 2
    assert meter.end(begun) == 2


def test_those_who_work_at_once_share_and_never_use_more_than_went_by() -> None:
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


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    clock = Clock()
    meter = Meter(clock)
    begun = meter.begin()
    clock.now -= 1
    assert meter.end(begun) == 0


def test_what_a_clock_forgets_for_a_moment_is_not_counted_again() -> None:
    clock = Clock()
    meter = Meter(clock)
    first, clock.now = meter.begin(), 1.0
    second, clock.now = meter.begin(), 100.5
    assert meter.end(first) + meter.end(second) == pytest.approx(0.5)


async def test_the_calls_of_a_batch_share_it_and_a_call_adds_up_what_it_used() -> None:
    room = CallsUnderWay()
    with room.entered("tenant", "") as one, room.entered("tenant", "") as other:
        one.uses("cpu", 1.0)
        Together([one, other]).uses("cpu", 3.0)
        Together([one, other]).uses("gpu-l4", 0.5)
        assert one.used == {"cpu": 2.5, "gpu-l4": 0.25}
        assert other.used == {"cpu": 1.5, "gpu-l4": 0.25}


def test_what_breaks_off_has_used_what_it_used() -> None:
    clock, user = Clock(), User()
    with pytest.raises(RuntimeError), Pool("gpu-l4", Meter(clock)).used(user):
        clock.now += 2
        raise RuntimeError
    assert user.used == {"gpu-l4": 2}


def test_threads_and_children_count_as_cpu_seconds() -> None:
    user = User()
    with cpus().used(user):
        thread = threading.Thread(target=lambda: sum(range(3_000_000)))
        thread.start()
        thread.join()
        subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert user.used["cpu"] > 0.3


def test_a_process_that_lives_on_counts_as_long_as_it_is_watched() -> None:
    user = User()
    with subprocess.Popen(
        [sys.executable, "-c", f"{BUSY}print(flush=True)\ninput()"], stdin=PIPE, stdout=PIPE
    ) as child:
        metering.watch(child.pid)
        with cpus().used(user):
            assert child.stdout
            child.stdout.readline()
        child.communicate(b"\n")
        metering.forget(child.pid)
    assert user.used["cpu"] > 0.1


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA L4", "gpu-l4"),
        ("Tesla T4", "gpu-t4"),
        ("NVIDIA A100-SXM4-80GB", "gpu-a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "gpu-rtx-4090"),
    ],
)
def test_a_gpu_is_called_after_its_product(product: str, name: str) -> None:
    assert gpu_name(product) == name


def test_a_device_is_one_pool_for_all_its_models_and_the_cpu_none_of_its_own() -> None:
    pools = Pools()
    one, other = (pools.of("cuda:0", lambda _: "NVIDIA L4") for _ in range(2))
    assert one is other
    assert one
    assert one.name == "gpu-l4"
    assert pools.of("cpu", str) is None
    assert pools.elsewhere.name == "elsewhere"


def test_an_operator_may_name_the_pool() -> None:
    pools = Pools("small")
    gpu = pools.of("cuda:0", lambda _: "NVIDIA L4")
    assert gpu
    assert {gpu.name, pools.elsewhere.name} == {"small"}


def test_seconds_are_written_by_pool() -> None:
    assert written({"cpu": 0.125, "gpu-l4": 0.05}) == "cpu=0.125000,gpu-l4=0.050000"
    assert not written({})
