import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from services.selector.cache import SharedCache


class Oracle:
    """Answers when it is allowed to."""

    def __init__(self) -> None:
        self.asked, self.gave_up = 0, False
        self.was_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def fail(self) -> str:
        await self.answer()
        raise ValueError("no")

    async def answer(self) -> str:
        self.asked += 1
        self.was_asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.gave_up = True
            raise
        return f"answer {self.asked}"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shared(
    *,
    size: int = 9,
    clock: Callable[[], float] = Clock(),  # noqa: B008  # a stopped clock
    worth: bool = True,
) -> SharedCache[str, str]:
    return SharedCache(lambda _: worth, seconds=10, size=size, clock=clock)


async def asking(
    answers: SharedCache[str, str], oracle: Oracle, find: Callable[[], Coroutine[Any, Any, str]]
) -> list[Any]:
    """Eight who ask the same and wait: the search begins after the last of them has asked."""
    tasks = [asyncio.create_task(answers.get("key", find)) for _ in range(8)]
    await oracle.was_asked.wait()
    return tasks


async def test_equal_questions_at_a_time_are_asked_once_and_paid_once() -> None:
    oracle, answers = Oracle(), shared()
    tasks = await asking(answers, oracle, oracle.answer)
    oracle.may_answer.set()
    found = await asyncio.gather(*tasks)
    assert [answer for answer, _ in found] == ["answer 1"] * 8
    assert [pays for _, pays in found].count(True) == 1
    assert oracle.asked == 1


async def test_an_answer_is_remembered_for_a_while() -> None:
    oracle, clock = Oracle(), Clock()
    oracle.may_answer.set()
    answers = shared(clock=clock)
    assert await answers.get("key", oracle.answer) == ("answer 1", True)
    clock.now = 9.9
    assert await answers.get("key", oracle.answer) == ("answer 1", False)
    clock.now = 10.0
    assert await answers.get("key", oracle.answer) == ("answer 2", True)


async def test_the_oldest_answers_are_forgotten_first() -> None:
    oracle, answers = Oracle(), shared(size=2)
    oracle.may_answer.set()
    for key in "abc":
        await answers.get(key, oracle.answer)
    assert not (await answers.get("c", oracle.answer))[1]
    assert not (await answers.get("b", oracle.answer))[1]
    assert (await answers.get("a", oracle.answer))[1]


async def test_what_is_not_worth_keeping_is_asked_again() -> None:
    oracle, answers = Oracle(), shared(worth=False)
    oracle.may_answer.set()
    assert [await answers.get("key", oracle.answer) for _ in range(2)] == [("answer 1", True), ("answer 2", True)]


@pytest.mark.parametrize("leaving", [0, 3])
async def test_whoever_leaves_does_no_harm_to_the_others(leaving: int) -> None:
    oracle, answers = Oracle(), shared()
    tasks = await asking(answers, oracle, oracle.answer)
    tasks[leaving].cancel()
    with suppress(asyncio.CancelledError):
        await tasks[leaving]
    oracle.may_answer.set()
    found = await asyncio.gather(*(task for task in tasks if task is not tasks[leaving]))
    assert len(found) == 7
    assert oracle.asked == 1
    assert not oracle.gave_up
    assert [pays for _, pays in found].count(True) == 1


async def test_when_all_have_left_the_search_ends_and_the_next_begins_anew() -> None:
    oracle, answers = Oracle(), shared()
    tasks = await asking(answers, oracle, oracle.answer)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert oracle.gave_up
    oracle.may_answer.set()
    assert await answers.get("key", oracle.answer) == ("answer 2", True)


async def test_a_failure_is_everybody_s_and_not_remembered() -> None:
    oracle, answers = Oracle(), shared()
    tasks = await asking(answers, oracle, oracle.fail)
    oracle.may_answer.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in found] == [ValueError] * 8
    assert await answers.get("key", oracle.answer) == ("answer 2", True)
