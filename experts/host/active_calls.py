"""The calls under way, and those who watch how far they are."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Step:
    """How far a call is."""

    fraction: float = 0.0
    """0 to 1."""
    message: str = ""


class CallUnderWay:
    """One call, as seen by the model that runs it: a handler.Call."""

    def __init__(self, changes: "_Changes", *, background: bool, deadline: float) -> None:
        self.background = background
        """Nobody in particular waits for it."""
        self.deadline = deadline
        """When its caller stops waiting, on time.monotonic()'s clock."""
        self.used: dict[str, float] = {}
        """Seconds of computing so far, by pool."""
        self._changes = changes
        self._step = Step()
        self._over = False

    @property
    def step(self) -> Step:
        return self._step

    @property
    def cancelled(self) -> bool:
        """Nobody waits for it any more."""
        return self._over

    def progress(self, fraction: float, message: str = "") -> None:
        """Tells how far the call is, 0 to 1; callable from any thread."""
        self._step = Step(min(max(fraction, 0.0), 1.0), message)
        self._changes.tell_from_thread()

    def uses(self, pool: str, seconds: float) -> None:
        """Has used so much of a pool; on whichever thread is at it."""
        self.used[pool] = self.used.get(pool, 0.0) + seconds

    def end(self) -> None:
        self._over = True
        self._changes.tell()


class Together:
    """The calls of one batch, as seen by the model that runs it: a handler.Call."""

    def __init__(self, calls: Sequence[CallUnderWay]) -> None:
        self._calls = calls

    @property
    def cancelled(self) -> bool:
        """Nobody waits for any of them any more."""
        return all(call.cancelled for call in self._calls)

    def progress(self, fraction: float, message: str = "") -> None:
        for call in self._calls:
            call.progress(fraction, message)

    def uses(self, pool: str, seconds: float) -> None:
        """Have used so much of a pool, all the same."""
        for call in self._calls:
            call.uses(pool, seconds / len(self._calls))


class CallsUnderWay:
    """All calls under way that their callers gave a name, by tenant and that name."""

    def __init__(self) -> None:
        self._changes = _Changes()
        self._calls: dict[tuple[str, str], CallUnderWay] = {}

    @contextmanager
    def entered(
        self, tenant: str, call_id: str, *, background: bool = False, deadline: float = inf
    ) -> Iterator[CallUnderWay]:
        """A call for as long as the block lasts; without an id nobody can follow it."""
        key, call = (tenant, call_id), CallUnderWay(self._changes, background=background, deadline=deadline)
        if call_id:
            self._calls[key] = call
        try:
            yield call
        finally:
            if self._calls.get(key) is call:
                del self._calls[key]
            call.end()

    async def follow(self, tenant: str, call_ids: Iterable[str], tell: Callable[[str, Step], Awaitable[None]]) -> None:
        """Tells where each of the calls stands, now and whenever that changes, until all have ended.

        Who takes long to be told misses steps in between, never the latest.
        """
        followed = {call_id: call for call_id in call_ids if (call := self._calls.get((tenant, call_id)))}
        told: dict[str, Step] = {}
        while followed:
            changed = self._changes.next()
            for call_id, call in followed.items():
                if told.get(call_id) != call.step:
                    told[call_id] = call.step
                    await tell(call_id, told[call_id])
            followed = {call_id: call for call_id, call in followed.items() if not call.cancelled}
            if followed:
                await changed.wait()


class _Changes:
    """Wakes everybody who waits for the next change of any call."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Event | None = None

    def next(self) -> asyncio.Event:
        self._next = self._next or asyncio.Event()
        return self._next

    def tell(self) -> None:
        if self._next:
            self._next.set()
            self._next = None

    def tell_from_thread(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it whoever watched
            self._loop.call_soon_threadsafe(self.tell)
