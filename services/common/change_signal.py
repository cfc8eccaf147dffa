"""A signal that wakes every waiter when some state has changed."""

import asyncio


class ChangeSignal:
    """Wakes all coroutines that wait for a change; none is lost between reading the state and waiting.

    A waiter takes the version before it reads the state, and then waits for a later version:

        version = signal.version
        while not ready(state):
            version = await signal.wait(version)
    """

    def __init__(self) -> None:
        self._version = 0
        self._changed = asyncio.Event()

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return self._version

    def notify(self) -> None:
        """Announces a change."""
        self._version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, version: int | None = None) -> int:
        """Waits for a change after the given version, by default the present one; returns the new version."""
        version = self._version if version is None else version
        while self._version == version:
            await self._changed.wait()
        return self._version
