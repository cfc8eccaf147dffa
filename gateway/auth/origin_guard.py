"""Open only to its own machine: what a web page elsewhere sends to this port is refused, whatever the route.

A page can reach a loopback port by a name it has pointed there (its Host gives it away) or by a form or script across
sites (its Origin does). Programs that send no Origin are served.
"""

from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from services.common.errors import PermissionDenied

_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HTTP_PORT = 80


class OriginGuard:
    """Lets through what was meant for this port and comes from no other site but those that are named."""

    def __init__(self, app: ASGIApp, port: int, origins: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in _NAMES} | (set(_NAMES) if port == _HTTP_PORT else set())
        self._origins = {f"http://{host}" for host in self._hosts} | {origin.lower() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts, origins = _sent(scope["headers"], b"host"), _sent(scope["headers"], b"origin")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            raise PermissionDenied(
                "this server answers only to its own machine, and the request was sent to another host",
                reason="HOST",
                remedy=f"use http://{min(self._hosts)}",
            )
        if any(origin not in self._origins for origin in origins):
            raise PermissionDenied(
                "this server answers only to its own pages, and the request comes from another site",
                reason="ORIGIN",
                remedy="ask from a program, or from a page of this server",
            )
        await self._app(scope, receive, send)


def _sent(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1").strip().lower() for key, value in headers if key == name]
