"""HTTP clients for the Hub's router, providers and endpoints, shared by all calls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from experts.remote import hub_internals
from experts.remote.blocking_calls import check_active
from experts.remote.settings import RemoteSettings
from services.common.errors import ModelFailed

if TYPE_CHECKING:
    from httpx2 import URL, AsyncClient, Client, Request, Response

_REDIRECTS = 3


@asynccontextmanager
async def open_connections(settings: RemoteSettings) -> AsyncIterator[None]:
    """Provides huggingface_hub with these HTTP clients within the block; connections open on the first call."""
    from experts.endpoints import http_client

    seconds, max_bytes = settings.timeout_seconds, settings.reply_bytes
    loop = asyncio.get_running_loop()
    async with http_client.open_client(seconds=seconds, reply_bytes=max_bytes) as shared:

        def client() -> "AbstractAsyncContextManager[AsyncClient]":
            if asyncio.get_running_loop() is loop:
                return nullcontext(shared)
            return http_client.open_client(seconds=seconds, reply_bytes=max_bytes)  # connections belong to their loop

        hub_internals.use_clients(client, lambda: _result_client(settings))
        try:
            yield
        finally:
            hub_internals.reset_clients()


def _result_client(settings: RemoteSettings) -> "Client":
    """Returns a client that fetches results from addresses chosen by the provider, which are not trusted."""
    from httpx2 import URL, Client, Timeout

    from experts.endpoints import http_client

    router = URL(hub_internals.router_url("any"))

    def on_request(request: "Request") -> None:
        check_active()
        if not _has_same_origin(request.url, router):
            _require_https(request.url)
            request.headers.pop("authorization", None)

    def on_response(response: "Response") -> None:
        check_active()
        http_client.limit_body(response, settings.reply_bytes)

    return Client(
        timeout=Timeout(settings.timeout_seconds, connect=http_client.CONNECT_SECONDS),
        follow_redirects=True,
        max_redirects=_REDIRECTS,
        event_hooks={"request": [on_request], "response": [on_response]},
        **http_client.common_options(),
    )


def _has_same_origin(first: "URL", second: "URL") -> bool:
    return (first.scheme, first.host, first.port) == (second.scheme, second.host, second.port)


def _require_https(address: "URL") -> None:
    """Requires HTTPS, whose certificate identifies the server, so that no internal service is called."""
    if address.scheme != "https":
        message = f"the provider's result is at {address.host}, which is not a public https address"
        raise ModelFailed(message, remedy="name another provider in REMOTE_PROVIDERS")
