"""Those who come with keys that are none: a few times a minute are mistakes, more is trying."""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta

from services.common.errors import Overloaded

ALLOWED = 10
"""Failures from one address in a window, answered as what they are."""

WINDOW_SECONDS = 60.0

MOST = 10_000
"""Addresses remembered; of more, those forgotten that began first."""

_HOST_BITS = 64
"""Of an IPv6 address: whoever has one has as many as these."""


class Failures:
    """Counts failures by address. A right key is let in however many: behind a proxy, all come from one address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def count(self, address: str) -> None:
        """One more from there.

        Raises:
            Overloaded: RATE_LIMIT, there were too many.
        """
        place, now = _network(address), self._clock()
        began, failures = self._windows.pop(place, (now, 0))
        if now - began >= WINDOW_SECONDS:
            began, failures = now, 0
        self._windows[place] = (began, failures + 1)
        if len(self._windows) > MOST:
            self._windows.popitem(last=False)
        if failures >= ALLOWED:
            raise Overloaded(
                "too many keys that are not known came from your address",
                reason="RATE_LIMIT",
                remedy="check the key, and wait a minute",
                retry_after=timedelta(seconds=began + WINDOW_SECONDS - now),
            )


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, _HOST_BITS), strict=False)) if found.version == 6 else address  # noqa: PLR2004  # IPv6
