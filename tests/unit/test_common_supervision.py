"""Background loops that are restarted after errors."""

import asyncio

import pytest
import structlog

from services.common import supervision
from services.common.errors import Unavailable
from services.common.supervision import supervise


async def test_failed_loop_is_restarted() -> None:
    errors: list[Exception] = [ZeroDivisionError("a bug"), Unavailable("the peer is away"), KeyError("a bug")]
    starts = 0

    async def loop() -> None:
        nonlocal starts
        starts += 1
        if errors:
            raise errors.pop()

    async with asyncio.timeout(30):
        await supervise(loop, name="test", pause=0)
    assert starts == 4


async def test_completed_loop_is_not_restarted() -> None:
    starts = 0

    async def loop() -> None:
        nonlocal starts
        starts += 1

    await supervise(loop, name="test")
    assert starts == 1


@pytest.mark.parametrize(("error", "level"), [(Unavailable("away"), "warning"), (KeyError("a bug"), "error")])
async def test_error_of_a_loop_is_logged(error: Exception, level: str) -> None:
    errors = [error]

    async def loop() -> None:
        if errors:
            raise errors.pop()

    with structlog.testing.capture_logs() as logs:
        await supervise(loop, name="test", pause=0)
    assert [line["loop"] for line in logs] == ["test"]
    assert [line["log_level"] for line in logs] == [level]


async def test_cancellation_ends_the_loop() -> None:
    supervised = asyncio.create_task(supervise(asyncio.Event().wait, name="test"))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    supervised.cancel()
    await asyncio.wait([supervised])
    assert supervised.cancelled()


async def test_pause_doubles_with_each_unexpected_exception_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "LONGEST_PAUSE_SECONDS", 0.003)
    failures = 4

    async def loop() -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("too many open files")

    with structlog.testing.capture_logs() as logs:
        await supervise(loop, name="test", pause=0.001)
    assert [line["retry_seconds"] for line in logs] == [0.001, 0.002, 0.003, 0.003]
