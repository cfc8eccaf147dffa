"""Active calls of an expert and the streams that follow their progress."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf

from protos.hugginggpt.v1.usage_pb2 import Usage


@dataclass(frozen=True)
class ProgressUpdate:
    """Progress of a call or of a model load."""

    fraction: float = 0.0
    """0 to 1."""
    message: str = ""


class ActiveCall:
    """One call, as seen by the model that runs it: a handler.UnbatchedCall."""

    def __init__(self, notifier: "_ChangeNotifier", *, background: bool, deadline: float) -> None:
        self.background = background
        """Whether it has batch priority."""
        self.deadline = deadline
        """When its caller stops waiting, by time.monotonic()."""
        self.used: dict[str, float] = {}
        """Computing time so far, in seconds by pool."""
        self.llm_usage = Usage()
        """Tokens and cost of LLMs so far."""
        self._notifier = notifier
        self._progress = ProgressUpdate()
        self._has_ended = False

    @property
    def latest_progress(self) -> ProgressUpdate:
        return self._progress

    @property
    def cancelled(self) -> bool:
        """Whether the call has ended for its caller."""
        return self._has_ended

    def progress(self, fraction: float, message: str = "") -> None:
        """Reports progress, 0 to 1; callable from any thread."""
        self._progress = ProgressUpdate(min(max(fraction, 0.0), 1.0), message)
        self._notifier.notify_from_thread()

    def add_usage(self, pool: str, seconds: float) -> None:
        """Adds computing time in a pool; called from the thread that runs the call."""
        self.used[pool] = self.used.get(pool, 0.0) + seconds

    def add_llm_usage(self, input_tokens: int, output_tokens: int, cost: float) -> None:
        """Adds what an LLM used; on the event loop."""
        self.llm_usage.input_tokens += input_tokens
        self.llm_usage.output_tokens += output_tokens
        self.llm_usage.cost += cost

    def end(self) -> None:
        self._has_ended = True
        self._notifier.notify()

    def items(self, count: int) -> "CallItems":
        """Returns the call as the model sees it that runs its items."""
        return CallItems(self, self._notifier, count)


class CallItems(ActiveCall):
    """The items of one call, as seen by the model that runs them.

    All items share it, since they end together for the caller. Progress is the share of items that have ended: what a
    model reports about a batch says nothing about the whole.
    """

    def __init__(self, call: ActiveCall, notifier: "_ChangeNotifier", count: int) -> None:
        super().__init__(notifier, background=call.background, deadline=call.deadline)
        self.used, self.llm_usage = call.used, call.llm_usage
        self.whole = call
        self._count, self._ended = count, 0
        self._lock = threading.Lock()

    @property
    def cancelled(self) -> bool:
        return self.whole.cancelled

    def progress(self, fraction: float, message: str = "") -> None:
        """Does nothing; see `report`."""

    def add_usage(self, pool: str, seconds: float) -> None:
        """Adds computing time in a pool; items run on several threads at once."""
        with self._lock:
            super().add_usage(pool, seconds)

    def count_ended(self, count: int) -> None:
        """Counts items that have ended, for the next report."""
        self._ended += count

    def report(self) -> None:
        """Reports the share of items that have ended as the call's progress; not before the model is loaded."""
        self.whole.progress(self._ended / self._count, f"{self._ended} of {self._count} items")


class BatchCall:
    """The calls of one batch, as seen by the model that runs it: a handler.Call."""

    def __init__(self, calls: Sequence[ActiveCall]) -> None:
        self._calls = Counter(calls)  # items of one call share it
        self._count = len(calls)

    @property
    def cancelled(self) -> bool:
        """Whether all calls of the batch have ended for their callers."""
        return all(call.cancelled for call in self._calls)

    def progress(self, fraction: float, message: str = "") -> None:
        for call in self._calls:
            call.progress(fraction, message)

    def add_usage(self, pool: str, seconds: float) -> None:
        """Divides computing time among the calls by their number of items."""
        for call, items in self._calls.items():
            call.add_usage(pool, seconds * items / self._count)


class ActiveCalls:
    """All active calls that have a call id, by tenant and id."""

    def __init__(self) -> None:
        self._notifier = _ChangeNotifier()
        self._calls: dict[tuple[str, str], ActiveCall] = {}

    @contextmanager
    def track(
        self, tenant: str, call_id: str, *, background: bool = False, deadline: float = inf
    ) -> Iterator[ActiveCall]:
        """Yields a call that is active within the block; without an id its progress cannot be followed."""
        key, call = (tenant, call_id), ActiveCall(self._notifier, background=background, deadline=deadline)
        if call_id:
            self._calls[key] = call
        try:
            yield call
        finally:
            if self._calls.get(key) is call:
                del self._calls[key]
            call.end()

    async def follow(
        self, tenant: str, call_ids: Iterable[str], report: Callable[[str, ProgressUpdate], Awaitable[None]]
    ) -> None:
        """Reports the progress of the calls, now and on every change, until all have ended.

        A slow receiver misses intermediate updates, but never the latest.
        """
        followed = {call_id: call for call_id in call_ids if (call := self._calls.get((tenant, call_id)))}
        reported: dict[str, ProgressUpdate] = {}
        while followed:
            changed = self._notifier.next()
            for call_id, call in followed.items():
                if reported.get(call_id) != call.latest_progress:
                    reported[call_id] = call.latest_progress
                    await report(call_id, reported[call_id])
            followed = {call_id: call for call_id, call in followed.items() if not call.cancelled}
            if followed:
                await changed.wait()


class _ChangeNotifier:
    """Wakes all waiters at the next change of any call."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Event | None = None

    def next(self) -> asyncio.Event:
        self._next = self._next or asyncio.Event()
        return self._next

    def notify(self) -> None:
        if self._next:
            self._next.set()
            self._next = None

    def notify_from_thread(self) -> None:
        with suppress(RuntimeError):  # the loop has closed, so there are no waiters
            self._loop.call_soon_threadsafe(self.notify)
