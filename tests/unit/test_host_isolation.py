"""Calls in worker processes: limits, replacement of workers, and the order of calls."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experts.host.isolation import Budget, Limits, Pool
from experts.host.isolation.messages import Prepare
from experts.host.isolation.processes import ForkServerProcess
from experts.host.threads import ThreadPool, mark_blocked
from services.common.errors import InvalidRequest, ModelFailed, RecoveryAction, recovery_action
from tests.support import isolated_functions as functions
from tests.support.process_tree import is_running
from tests.support.samples import RecordingCall

pytestmark = pytest.mark.timeout(120)

MEBIBYTE = 1024 * 1024
UNLIMITED = Limits(1024 * MEBIBYTE, 3600.0, 3600.0)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServerProcess]:
    forks = ForkServerProcess(
        ("experts.host.isolation.worker", "tests.support.isolated_functions", "numpy", "PIL.Image")
    )
    yield forks
    forks.close()


@pytest.fixture
def pool(fork_server: ForkServerProcess) -> Iterator[Callable[..., Pool]]:
    """Makes pools that end with the test."""
    made: list[Pool] = []

    def make(limits: Limits = UNLIMITED, **options: Any) -> Pool:
        given: dict[str, Any] = {"size": 1, "slow": 1, "slow_seconds": 3600.0, **options}
        made.append(Pool(lambda: fork_server, limits, **given))
        return made[-1]

    yield make
    for one in made:
        one.close()


def run(pool: Pool, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return pool.run(function, arguments, file="museum.pdf", port="image", **options)


def refusal(pool: Pool, function: Callable[..., Any], *arguments: Any, **options: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        run(pool, function, *arguments, **options)
    return caught.value


@contextmanager
def running(pool: Pool, function: Callable[..., Any], *arguments: Any, **options: Any) -> Iterator[Future[Any]]:
    """A call that runs within the block."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit(run, pool, function, *arguments, **options)
        pool.close()


@pytest.mark.parametrize(
    "value",
    [None, b"", b"x" * 200_000, "text", [b"a" * 20_000, b"b" * 30_000], {"key": (1, 2.5)}],
    ids=["none", "no bytes", "many bytes", "text", "list", "dict"],
)
def test_values_come_back_as_they_were_sent(pool: Callable[..., Pool], value: object) -> None:
    assert run(pool(), functions.echo, value) == value


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
def test_pictures_come_back_as_they_were_sent(pool: Callable[..., Pool], mode: str) -> None:
    picture = Image.effect_noise((301, 200), 40).convert(mode)
    back = run(pool(), functions.echo, picture)
    assert back.mode == mode
    assert back.tobytes() == picture.tobytes()


def test_values_come_back_while_another_thread_imports_pillow(
    pool: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", ModuleType("PIL.Image"))  # as it is at the start of its import
    assert run(pool(), functions.echo, [b"a" * 20_000]) == [b"a" * 20_000]


def test_colour_profile_of_a_picture_is_kept(pool: Callable[..., Pool]) -> None:
    picture = Image.new("RGB", (300, 300))
    picture.info["icc_profile"] = b"profile"
    assert run(pool(), functions.echo, picture).info["icc_profile"] == b"profile"


def test_arrays_come_back_writable(pool: Callable[..., Pool]) -> None:
    sent: list[np.ndarray[Any, Any]] = [
        np.arange(100_000, dtype=np.float32),
        np.arange(3),
        np.arange(50_000).reshape(50, 1000),
    ]
    back = run(pool(), functions.echo, sent)
    assert all(np.array_equal(one, other) for one, other in zip(back, sent, strict=True))
    assert all(part.flags.writeable for part in back)


def test_results_of_growing_and_shrinking_size_come_back(pool: Callable[..., Pool]) -> None:
    workers = pool()
    for size in (10, 100_000, 50_000_000, 20_000, 70_000_000, 0):
        assert run(workers, functions.echo, b"x" * size) == b"x" * size


def test_exception_of_the_function_reaches_the_caller(pool: Callable[..., Pool]) -> None:
    with pytest.raises(KeyError, match="unexpected"):
        run(pool(), functions.fail)


def test_exception_that_cannot_be_pickled_is_named(pool: Callable[..., Pool]) -> None:
    with pytest.raises(RuntimeError, match="Unpicklable"):
        run(pool(), functions.fail_unpicklably)


def test_worker_is_reused_after_an_exception(pool: Callable[..., Pool]) -> None:
    workers = pool()
    before = run(workers, functions.process_id)
    with pytest.raises(KeyError):
        run(workers, functions.fail)
    assert run(workers, functions.process_id) == before


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("function", [functions.allocate, functions.allocate_native])
def test_call_over_its_memory_fails(pool: Callable[..., Pool], function: Callable[[int], int]) -> None:
    error = refusal(pool(Limits(256 * MEBIBYTE)), function, 1024 * MEBIBYTE)
    assert error.reason == "DECODE_LIMIT"
    assert "museum.pdf" in error.message
    assert "256 MiB of memory" in error.message
    assert "EXPERT_DECODE_MEMORY_BYTES" in error.remedy
    assert error.port == "image"


def test_call_within_its_memory_succeeds_many_times(pool: Callable[..., Pool]) -> None:
    workers = pool(Limits(256 * MEBIBYTE))
    assert [run(workers, functions.allocate, 160 * MEBIBYTE) for _ in range(4)] == [10] * 4


def test_result_over_the_memory_fails(pool: Callable[..., Pool]) -> None:
    error = refusal(pool(Limits(128 * MEBIBYTE)), functions.zeros, 100 * MEBIBYTE)
    assert error.reason == "DECODE_LIMIT"


def test_call_over_its_processor_time_fails(pool: Callable[..., Pool]) -> None:
    error = refusal(pool(Limits(cpu_seconds=0.5)), functions.spin)
    assert error.reason == "DECODE_LIMIT"
    assert "0.5 s of processor time" in error.message


def test_call_over_its_wall_time_fails(pool: Callable[..., Pool]) -> None:
    error = refusal(pool(Limits(wall_seconds=0.2)), functions.sleep, 3600.0)
    assert error.reason == "DECODE_LIMIT"
    assert "more than 0.2 s" in error.message


def test_calls_on_one_file_share_its_time(pool: Callable[..., Pool]) -> None:
    workers, budget = pool(Limits(wall_seconds=1.0)), Budget()
    error = None
    for _ in range(20):
        try:
            run(workers, functions.sleep, 0.2, budget=budget)
        except InvalidRequest as raised:
            error = raised
            break
    assert error is not None
    assert error.reason == "DECODE_LIMIT"


def test_error_of_a_limit_is_given_up() -> None:
    assert recovery_action(InvalidRequest("too much", reason="DECODE_LIMIT")) is RecoveryAction.GIVE_UP


@pytest.mark.parametrize(
    ("function", "cause"), [(functions.abort, "SIGABRT"), (functions.segfault, "SIGSEGV")], ids=["abort", "segfault"]
)
def test_crash_names_the_file(pool: Callable[..., Pool], function: Callable[[], None], cause: str) -> None:
    error = refusal(pool(), function)
    assert error.reason == "DECODE_CRASH"
    assert "museum.pdf" in error.message
    assert cause in error.message


def test_crash_of_a_partial_function_names_the_file(pool: Callable[..., Pool]) -> None:
    assert "museum.pdf" in refusal(pool(), partial(functions.exit_process, 3)).message


def test_worker_that_exits_in_the_call_is_a_crash(pool: Callable[..., Pool]) -> None:
    assert refusal(pool(), functions.exit_process, 0).reason == "DECODE_CRASH"


def test_worker_killed_by_the_system_counts_as_out_of_memory(pool: Callable[..., Pool]) -> None:
    assert refusal(pool(), functions.kill_itself).reason == "DECODE_LIMIT"


# ---------------------------------------------------------------- workers


@pytest.mark.parametrize(
    ("function", "limits"),
    [
        (functions.abort, UNLIMITED),
        (functions.spin, Limits(cpu_seconds=0.5)),
        (functions.spin, Limits(wall_seconds=0.2)),
        (functions.allocate_native, Limits(64 * MEBIBYTE)),
    ],
    ids=["crash", "processor", "wall", "memory"],
)
def test_worker_is_replaced(pool: Callable[..., Pool], function: Callable[..., Any], limits: Limits) -> None:
    workers = pool(limits)
    first = run(workers, functions.process_id)
    refusal(workers, function, *([1024 * MEBIBYTE] if function is functions.allocate_native else []))
    assert run(workers, functions.process_id) != first
    assert not is_running(first)


def test_worker_that_stays_large_is_replaced(pool: Callable[..., Pool]) -> None:
    workers = pool()
    first = run(workers, functions.process_id)
    run(workers, functions.keep_allocated, 300 * MEBIBYTE)
    assert run(workers, functions.process_id) != first


def test_worker_that_dies_idle_is_replaced(pool: Callable[..., Pool]) -> None:
    workers = pool()
    first = run(workers, functions.process_id)
    os.kill(first, 9)
    while is_running(first) or first in workers.process_ids:
        pass
    assert run(workers, functions.process_id) != first


def test_workers_have_what_they_prepared(pool: Callable[..., Pool]) -> None:
    workers = pool(prepare=Prepare(functions.set_prepared, ("engine",)))
    assert run(workers, functions.get_prepared) == ["engine"]


def test_error_in_preparing_reaches_the_caller(pool: Callable[..., Pool]) -> None:
    with pytest.raises(ModelFailed, match="cannot start"):
        pool(prepare=Prepare(functions.fail)).wait_ready()


def test_pool_starts_a_worker_again_after_a_failed_start(pool: Callable[..., Pool], tmp_path: Path) -> None:
    workers = pool(prepare=Prepare(functions.require_file, (str(tmp_path / "model"),)))
    with pytest.raises(ModelFailed):
        workers.wait_ready()
    (tmp_path / "model").touch()
    workers.wait_ready()
    assert run(workers, functions.echo, 1) == 1


def test_closed_pool_leaves_no_process(pool: Callable[..., Pool]) -> None:
    workers = pool(size=2)
    first = run(workers, functions.process_id)
    with running(workers, functions.spin) as call:
        while len(workers.process_ids) < 1 or not any(map(is_running, workers.process_ids)):
            pass
    assert call.exception() is not None
    while is_running(first):  # killed, and gone soon
        pass


def test_fork_server_leaves_no_process() -> None:
    forks = ForkServerProcess(("experts.host.isolation.worker", "tests.support.isolated_functions"))
    workers = Pool(lambda: forks, UNLIMITED, size=1, slow=1, slow_seconds=1.0)
    worker = run(workers, functions.process_id)
    forks.close()
    assert not is_running(worker)
    assert not is_running(forks.pid)


def test_workers_end_with_their_fork_server() -> None:
    servers = [
        ForkServerProcess(("experts.host.isolation.worker", "tests.support.isolated_functions")) for _ in range(2)
    ]
    workers = Pool(lambda: next(one for one in servers if one.is_alive), UNLIMITED, size=1, slow=1, slow_seconds=1.0)
    worker = run(workers, functions.process_id)
    os.kill(servers[0].pid, 9)
    while is_running(worker) or worker in workers.process_ids:
        pass
    assert run(workers, functions.echo, 1) == 1
    workers.close()
    for fork_server in servers:
        fork_server.close()


# ---------------------------------------------------------------- the order of calls


def test_quick_calls_pass_many_slow_ones(pool: Callable[..., Pool]) -> None:
    workers = pool(size=2, slow=1, slow_seconds=0.2)
    with ThreadPoolExecutor(6) as threads:
        hostile = [threads.submit(run, workers, functions.spin) for _ in range(5)]
        assert run(workers, functions.echo, "quick") == "quick"
        assert not any(call.done() for call in hostile)
        workers.close()


def test_slow_calls_beyond_their_share_are_run_later(pool: Callable[..., Pool], tmp_path: Path) -> None:
    workers = pool(size=2, slow=1, slow_seconds=0.1)
    release = tmp_path / "release"
    with ThreadPoolExecutor(4) as threads:
        slow = [threads.submit(run, workers, functions.spin_until, str(release)) for _ in range(3)]
        for _ in range(10):
            run(workers, functions.echo, "quick")
        release.touch()
        assert [call.result() for call in slow] == [True] * 3


def test_interactive_calls_come_before_background_ones(pool: Callable[..., Pool], tmp_path: Path) -> None:
    workers, order = pool(), tmp_path / "order"
    release = tmp_path / "release"
    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(run, workers, functions.wait_for, str(release))
        while not workers.running:
            pass
        background = [
            threads.submit(run, workers, functions.append_text, str(order), "b", background=True) for _ in range(3)
        ]
        while workers.waiting < 3:
            pass
        interactive = threads.submit(run, workers, functions.append_text, str(order), "i")
        while workers.waiting < 4:
            pass
        release.touch()
        for call in (first, interactive, *background):
            call.result()
    assert order.read_text(encoding="ascii") == "ibbb"


def test_tenant_with_fewer_running_calls_comes_first(pool: Callable[..., Pool], tmp_path: Path) -> None:
    workers, order = pool(size=2, slow=2), tmp_path / "order"
    gates = [tmp_path / name for name in ("one", "two")]
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(run, workers, functions.wait_for, str(gate), tenant="a") for gate in gates]
        while workers.running < 2:
            pass
        for tenant, count in (("a", 1), ("b", 2)):
            calls.append(threads.submit(run, workers, functions.append_text, str(order), tenant, tenant=tenant))
            while workers.waiting < count:
                pass
        gates[0].touch()
        calls[2].result()
        gates[1].touch()
        for call in calls:
            call.result()
    assert order.read_text(encoding="ascii") == "ba"


@pytest.mark.parametrize("size", [1, 2], ids=["waiting", "running"])
def test_call_ends_when_its_caller_leaves(pool: Callable[..., Pool], size: int) -> None:
    workers, caller = pool(size=size, slow=2), RecordingCall()
    with ThreadPoolExecutor(2) as threads:
        if size == 1:
            threads.submit(run, workers, functions.spin)
            while not workers.running:
                pass
        call = threads.submit(run, workers, functions.spin, call=caller)
        while workers.waiting + workers.running < (2 if size == 1 else 1):
            pass
        caller.cancelled = True
        assert call.exception() is not None
        workers.close()


def test_progress_reaches_the_call(pool: Callable[..., Pool]) -> None:
    caller = RecordingCall()
    run(pool(), functions.report, 0.5, call=caller)
    assert caller.fractions == [0.5]


# ---------------------------------------------------------------- threads


def test_thread_that_only_waits_is_replaced() -> None:
    threads, release, ran = ThreadPool("test", 1, elastic=True), threading.Event(), threading.Event()

    def wait() -> None:
        with mark_blocked():
            release.wait()

    threads.post(wait)
    threads.post(ran.set)
    assert ran.wait(30)
    release.set()
    threads.close()


def test_threads_are_no_more_than_their_number_after_waiting() -> None:
    threads, release, names = ThreadPool("surplus", 1, elastic=True), threading.Event(), list[str]()
    waiting = threading.Semaphore(0)

    def wait() -> None:
        with mark_blocked():
            waiting.release()
            release.wait()

    for _ in range(5):
        threads.post(wait)
    for _ in range(5):
        waiting.acquire()
    release.set()
    done = threading.Event()
    for _ in range(20):
        threads.post(lambda: names.append(threading.current_thread().name))
    threads.post(done.set)
    assert done.wait(30)
    threads.close()
    while any(thread.name.startswith("surplus") for thread in threading.enumerate()):
        pass
    assert len(names) == 20
