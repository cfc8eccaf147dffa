import asyncio
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import pytest

from experts.host.threads import Threads

who: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def thread() -> Iterator[Threads]:
    threads = Threads("test")
    yield threads
    threads.close()


async def test_a_function_runs_elsewhere_and_its_result_comes_back(thread: Threads) -> None:
    assert await thread.run(threading.get_ident) != threading.get_ident()


async def test_a_function_sees_the_context_of_its_caller(thread: Threads) -> None:
    who.set("me")
    assert await thread.run(who.get) == "me"


async def test_what_is_cancelled_before_its_turn_is_left_out(thread: Threads) -> None:
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


async def test_a_caller_is_freed_while_its_function_is_stuck(thread: Threads) -> None:
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
async def test_an_error_comes_back_as_it_was(thread: Threads, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        await thread.run(raising(error))
    assert caught.value is error


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), StopIteration(), asyncio.CancelledError()], ids=repr
)
async def test_what_would_end_more_than_the_call_comes_back_as_an_error(thread: Threads, error: BaseException) -> None:
    with pytest.raises(RuntimeError, match=type(error).__name__) as caught:
        await thread.run(raising(error))
    assert traceback.extract_tb(caught.tb)[-1].name == "function"


def test_a_stuck_thread_does_not_keep_the_process_from_ending() -> None:
    program = """
import asyncio, threading
from experts.host.threads import Threads

async def main():
    started = threading.Event()
    def stuck():
        started.set()
        threading.Event().wait()
    task = asyncio.create_task(Threads("stuck").run(stuck))
    await asyncio.to_thread(started.wait)

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=20, check=False, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")


async def test_a_thread_keeps_nothing_of_the_call_it_has_ended(thread: Threads) -> None:
    class Picture:
        pass

    picture, freed = Picture(), threading.Event()
    weakref.finalize(picture, freed.set)
    await thread.run(lambda given: None, picture)
    del picture
    assert await asyncio.to_thread(freed.wait, 5)
