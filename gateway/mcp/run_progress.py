"""Waits for the end of a run, and describes its state and progress to the client."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.core import progress_text
from gateway.core.run_stream import RunEventFeed
from protos.hugginggpt.run_state import UNFINISHED_TASK_STATES, RunFold
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_AWAITING_APPROVAL, RUN_STATE_QUEUED, Run
from services.common.errors import ServiceError

HEARTBEAT_SECONDS = 8.0
"""Longest interval without a report; clients may time out after ten seconds of silence."""

OnProgress = Callable[[float, str], Awaitable[None]]
"""Called with an increasing number and a description of the present step."""


def active_state(run: Run) -> str:
    """Describes the present step of a run that has not ended, as the rest of a sentence that names the run."""
    if run.state == RUN_STATE_QUEUED:
        return "is queued"
    if run.state == RUN_STATE_AWAITING_APPROVAL:
        return "waits for approval of its plan"
    planned = len(run.tasks)
    ended = sum(status.state not in UNFINISHED_TASK_STATES for status in run.tasks)
    if ended < planned:
        return f"is running; {ended} of {planned} planned tasks have ended"
    if run.answer:
        return "is running; its answer is being written"
    if not planned:
        return "is running; its tasks are being planned"
    tasks = "its task has" if planned == 1 else f"all {planned} planned tasks have"
    return f"is running; {tasks} ended, and its answer or further tasks follow"


async def wait_for_end(feed: RunEventFeed, seconds: float, on_progress: OnProgress) -> None:
    """Follows a run to its end, for at most `seconds`."""
    reporter = _ProgressReporter(feed, on_progress)
    reading = asyncio.create_task(reporter.read())
    try:
        async with asyncio.timeout(seconds):
            while not reading.done():
                await asyncio.wait((reading,), timeout=HEARTBEAT_SECONDS)
                if not reading.done():
                    await reporter.report(reporter.state())
    except TimeoutError:
        return
    finally:
        reading.cancel()
        await asyncio.wait((reading,))
        feed.stop()


class _ProgressReporter:
    def __init__(self, feed: RunEventFeed, on_progress: OnProgress) -> None:
        self._run = RunFold(ignore_unplanned=True)
        self._feed = feed
        self._on_progress = on_progress
        self._lock = asyncio.Lock()
        self._reports = 0

    async def read(self) -> None:
        try:
            while (event := await self._feed.read()) is not None:
                self._run.apply(event)
                if message := progress_text.line(event).strip():
                    await self.report(message)
        except ServiceError:
            return  # the caller reads the state of the run afterwards

    def state(self) -> str:
        """Describes the present step, which can have changed since the last event that users see."""
        return f"The run {active_state(self._run.snapshot())}."

    async def report(self, message: str) -> None:
        async with self._lock:
            self._reports += 1
            await self._on_progress(self._reports, message)
