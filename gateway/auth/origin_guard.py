"""Protects an unauthenticated loopback gateway from requests of web pages on other sites.

A page can reach a loopback port through a DNS name that resolves to it (visible in Host), or through a cross-site form
or script (visible in Origin). Programs that send no Origin header are served.
"""

from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from services.common.errors import PermissionDenied

_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HTTP_PORT = 80


class OriginGuard:
    """Rejects requests with a foreign Host or Origin header."""

    def __init__(self, app: ASGIApp, port: int, origins: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in _NAMES} | (set(_NAMES) if port == _HTTP_PORT else set())
        self._origins = {f"http://{host}" for host in self._hosts} | {origin.lower() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts, origins = _sent(scope["headers"], b"host"), _sent(scope["headers"], b"origin")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            raise PermissionDenied(
                "without authentication the gateway accepts only requests to a loopback host name",
                reason="HOST",
                remedy=f"use http://{min(self._hosts)}",
            )
        if any(origin not in self._origins for origin in origins):
            raise PermissionDenied(
                "without authentication the gateway accepts no requests from web pages of other origins",
                reason="ORIGIN",
                remedy="use a program or a page of this gateway, or add the origin to GATEWAY_CORS_ORIGINS",
            )
        await self._app(scope, receive, send)


def _sent(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1").strip().lower() for key, value in headers if key == name]
