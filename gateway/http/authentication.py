"""Authentication and limits of HTTP requests: origins, API keys, rate limits and quotas."""

import re
from collections.abc import Iterable, Mapping, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.auth.authenticator import Authenticator, token
from gateway.auth.identity import CallerFactory, Identity, identified_as
from gateway.auth.session_revocation import ActiveSessions
from gateway.auth.signed_links import LinkSigner, use_link_signer
from gateway.http.problem import problem_response
from gateway.http.sse import MEDIA_TYPE as EVENT_STREAM
from gateway.limits.quotas import Meter, Quotas, use_meter
from services.common.call_context import current, use_caller
from services.common.errors import PermissionDenied, ServiceError, Unauthenticated

_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HTTP_PORT = 80


class OriginGuard:
    """Rejects requests of web pages on other sites to a loopback gateway without authentication.

    A page can reach a loopback port through a DNS name that resolves to it (visible in Host), or through a cross-site
    form or script (visible in Origin). Programs that send no Origin header are served.
    """

    def __init__(self, port: int, origins: Iterable[str] = ()) -> None:
        self._hosts = {f"{name}:{port}" for name in _NAMES} | (set(_NAMES) if port == _HTTP_PORT else set())
        self._origins = {f"http://{host}" for host in self._hosts} | {origin.lower() for origin in origins}

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Checks the Host and Origin headers of a request.

        Raises:
            PermissionDenied: one of them is foreign.
        """
        hosts, origins = _sent(headers, b"host"), _sent(headers, b"origin")
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


def _sent(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1").strip().lower() for key, value in headers if key == name]


_CORS_METHODS = ("GET", "HEAD", "POST", "DELETE")

_EXPOSED_HEADERS = (
    "location",
    "retry-after",
    "www-authenticate",
    "x-request-id",
    "x-run-id",
    "x-hugginggpt-warning",
    "x-trace-id",
    "preference-applied",
    "content-disposition",
    "content-range",
    "etag",
    "mcp-session-id",
    *(f"x-ratelimit-{fact}-{what}" for what in ("requests", "tokens") for fact in ("limit", "remaining", "reset")),
)
"""Response headers that pages of other origins may read."""

PUBLIC = re.compile(r"/|/(healthz|readyz|openapi\.json|(docs|web)(/.*)?|mcp/uploads/[\w-]+)")
"""Paths that need no key: they are public, or contain a secret of their own (MCP uploads)."""


class AuthenticationMiddleware:
    """Serves each request with its authenticated identity, within its limits; rejects invalid ones.

    Args:
        app: the application.
        authenticator: authenticates API keys and tokens.
        link_signer: authenticates signed links.
        callers: creates the caller of each request.
        quotas: rate limits and quotas of identities.
        sessions: ends requests whose key is revoked.
        origin_guard: checks Host and Origin; only for a gateway without authentication.
        origins: origins of web pages that may call the API (CORS).
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        link_signer: LinkSigner,
        callers: CallerFactory,
        *,
        quotas: Quotas,
        sessions: ActiveSessions,
        origin_guard: OriginGuard | None = None,
        origins: Sequence[str] = (),
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._link_signer = link_signer
        self._callers = callers
        self._quotas = quotas
        self._sessions = sessions
        self._origin_guard = origin_guard
        self._serve: ASGIApp = (
            CORSMiddleware(
                self._serve_authenticated,
                allow_origins=origins,
                allow_methods=_CORS_METHODS,
                allow_headers=["*"],
                expose_headers=_EXPOSED_HEADERS,
            )
            if origins
            else self._serve_authenticated
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._origin_guard:
            self._origin_guard.check(scope["headers"])
        await self._serve(scope, receive, send)

    async def _serve_authenticated(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Rejections are sent as responses, not raised, so that CORS headers are added to them."""
        if PUBLIC.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            identity = self._link_signer.authenticate(scope) or await self._authenticate(scope)
            limit_status = await self._quotas.request(identity)
            limited_send = _adding_headers(send, limit_status.headers())
        except ServiceError as error:
            await problem_response(error, scope["path"])(scope, receive, send)
            return
        try:
            limit_status.check()
        except ServiceError as error:
            await problem_response(error, scope["path"])(scope, receive, limited_send)
            return
        await self._serve_as(identity, scope, receive, limited_send)

    async def _authenticate(self, scope: Scope) -> Identity:
        sent = token(Headers(scope=scope).get("authorization", ""))
        return await self._authenticator.authenticate(sent, (scope.get("client") or ("", 0))[0])

    async def _serve_as(self, identity: Identity, scope: Scope, receive: Receive, send: Send) -> None:
        meter = self._quotas.meter(identity)
        answer = _TrackedResponse(send)
        with (
            identified_as(identity),
            use_link_signer(self._link_signer),
            use_meter(meter),
            use_caller(self._callers.create(current().request_id)),
        ):
            try:
                async with self._sessions.track(identity):
                    await self._app(scope, _metered_receive(receive, meter) if meter else receive, answer)
            except Unauthenticated as error:
                await answer.end(problem_response(error, scope["path"]), scope, receive)
            finally:
                if meter:
                    await meter.flush()


class _TrackedResponse:
    """Response in progress, which can be ended early."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head = message
        await self._send(message)

    async def end(self, problem: Response, scope: Scope, receive: Receive) -> None:
        """Sends the error if nothing has been sent; ends an event stream; leaves other responses incomplete."""
        if self._head is None:
            await problem(scope, receive, self._send)
        elif MutableHeaders(scope=self._head).get("content-type", "").startswith(EVENT_STREAM):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _adding_headers(send: Send, headers: Mapping[str, str]) -> Send:
    if not headers:
        return send

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return send_with_headers


def _metered_receive(receive: Receive, meter: Meter) -> Receive:
    async def receive_metered() -> Message:
        message = await receive()
        if body := message.get("body"):
            await meter.add(len(body))
        return message

    return receive_metered
