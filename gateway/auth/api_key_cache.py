"""Cache of API keys, so that most requests need no database query."""

import time
from collections import OrderedDict
from collections.abc import Callable

from gateway.auth.api_keys import Key, Keys
from services.common.errors import Unavailable

FRESH_SECONDS = 2.0
"""Seconds a cached key is used without reading it again; a revocation takes effect after at most this time."""

STALE_SECONDS = 300.0
"""Seconds a cached key is used while the database is unavailable."""

MAX_KEYS = 10_000
"""Maximum number of cached keys."""


class ApiKeyCache:
    """Reads API keys on demand and caches them for a short time."""

    def __init__(self, keys: Keys, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, Key | None]] = OrderedDict()

    async def find(self, key_id: str) -> Key | None:
        """Returns the key with the public id, or None.

        Raises:
            Unavailable: the database is unavailable and the key is not cached.
        """
        read, key = self._entries.get(key_id, (None, None))
        if read is not None and self._clock() - read < FRESH_SECONDS:
            return key
        try:
            key = await self._keys.find(key_id)
        except Unavailable:
            if read is None or self._clock() - read >= STALE_SECONDS:
                raise
            return key
        self._store(key_id, key)
        return key

    def _store(self, key_id: str, key: Key | None) -> None:
        self._entries[key_id] = (self._clock(), key)
        self._entries.move_to_end(key_id)
        if len(self._entries) > MAX_KEYS:
            self._entries.popitem(last=False)
