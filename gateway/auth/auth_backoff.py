"""Limits failed authentication attempts per client network."""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta

from services.common.errors import Overloaded

MAX_FAILURES = 10
"""Failed attempts of one network per window that are answered with 401; further ones with 429."""

WINDOW_SECONDS = 60.0

MAX_NETWORKS = 10_000
"""Maximum number of networks tracked; the oldest windows are dropped first."""

_HOST_BITS = 64
"""Host bits of an IPv6 network, within which one client can choose its address freely."""


class AuthBackoff:
    """Counts failed attempts by network. Valid keys are never blocked: clients behind a proxy share its address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def record_failure(self, address: str) -> None:
        """Counts a failed attempt.

        Raises:
            Overloaded: RATE_LIMIT, too many failures in this window.
        """
        network, now = _network_of(address), self._clock()
        started, failures = self._windows.pop(network, (now, 0))
        if now - started >= WINDOW_SECONDS:
            started, failures = now, 0
        self._windows[network] = (started, failures + 1)
        if len(self._windows) > MAX_NETWORKS:
            self._windows.popitem(last=False)
        if failures >= MAX_FAILURES:
            raise Overloaded(
                "too many requests with an invalid API key from this address",
                reason="RATE_LIMIT",
                remedy="check the API key, and try again in a minute",
                retry_after=timedelta(seconds=started + WINDOW_SECONDS - now),
            )


def _network_of(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, _HOST_BITS), strict=False)) if found.version == 6 else address  # noqa: PLR2004  # IPv6
