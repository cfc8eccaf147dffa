import asyncio
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import pytest

from experts.host.threads import ThreadPool

caller: ContextVar[str] = ContextVar("caller", default="unset")


@pytest.fixture
def thread() -> Iterator[ThreadPool]:
    threads = ThreadPool("test")
    yield threads
    threads.close()


async def test_function_runs_on_another_thread(thread: ThreadPool) -> None:
    assert await thread.run(threading.get_ident) != threading.get_ident()


async def test_function_sees_the_context_of_its_caller(thread: ThreadPool) -> None:
    caller.set("me")
    assert await thread.run(caller.get) == "me"


async def test_function_cancelled_before_it_starts_is_skipped(thread: ThreadPool) -> None:
    release, ran = threading.Event(), list[str]()
    first = asyncio.create_task(thread.run(release.wait, 5))
    second = asyncio.create_task(thread.run(ran.append, "second"))
    third = asyncio.create_task(thread.run(ran.append, "third"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    release.set()
    await asyncio.gather(first, third)
    assert ran == ["third"]


async def test_caller_can_be_cancelled_while_its_function_is_stuck(thread: ThreadPool) -> None:
    started, release = threading.Event(), threading.Event()

    def stuck() -> None:
        started.set()
        release.wait(5)

    waiting = asyncio.create_task(thread.run(stuck))
    assert await asyncio.to_thread(started.wait, 5)
    waiting.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert not release.is_set()
    release.set()
    assert await thread.run(lambda: "next") == "next"


def raising(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("k"), MemoryError()], ids=repr)
async def test_error_is_raised_unchanged(thread: ThreadPool, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        await thread.run(raising(error))
    assert caught.value is error


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), StopIteration(), asyncio.CancelledError()], ids=repr
)
async def test_control_flow_exceptions_become_runtime_errors(thread: ThreadPool, error: BaseException) -> None:
    with pytest.raises(RuntimeError, match=type(error).__name__) as caught:
        await thread.run(raising(error))
    assert traceback.extract_tb(caught.tb)[-1].name == "function"


def test_stuck_thread_does_not_block_process_exit() -> None:
    program = """
import asyncio, threading
from experts.host.threads import ThreadPool

async def main():
    started = threading.Event()
    def stuck():
        started.set()
        threading.Event().wait()
    task = asyncio.create_task(ThreadPool("stuck").run(stuck))
    await asyncio.to_thread(started.wait)

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=20, check=False, capture_output=True)
    assert ended.returncode == 0
    assert ended.stderr == b""


async def test_thread_releases_arguments_after_the_call(thread: ThreadPool) -> None:
    class Picture:
        pass

    picture, freed = Picture(), threading.Event()
    weakref.finalize(picture, freed.set)
    await thread.run(lambda given: None, picture)
    del picture
    assert await asyncio.to_thread(freed.wait, 5)
