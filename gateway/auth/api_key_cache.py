"""Keys as the gateway has them at hand: what is revoked anywhere is refused here two seconds later."""

import time
from collections import OrderedDict
from collections.abc import Callable

from gateway.auth.api_keys import Key, Keys
from services.common.errors import Unavailable

FRESH_SECONDS = 2.0
"""How long a key is believed to be as it was read."""

STALE_SECONDS = 300.0
"""How long it is believed while the database does not answer."""

MOST = 10_000
"""Keys kept at hand."""


class KeyRing:
    """Reads keys when they are asked for, and remembers them for a moment."""

    def __init__(self, keys: Keys, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Key | None]] = OrderedDict()

    async def find(self, key_id: str) -> Key | None:
        """The key of that public id.

        Raises:
            Unavailable: the database does not answer, and the key has not been seen lately.
        """
        read, key = self._known.get(key_id, (None, None))
        if read is not None and self._clock() - read < FRESH_SECONDS:
            return key
        try:
            key = await self._keys.find(key_id)
        except Unavailable:
            if read is None or self._clock() - read >= STALE_SECONDS:
                raise
            return key
        self._remember(key_id, key)
        return key

    def _remember(self, key_id: str, key: Key | None) -> None:
        self._known[key_id] = (self._clock(), key)
        self._known.move_to_end(key_id)
        if len(self._known) > MOST:
            self._known.popitem(last=False)
