"""The connections to the Hub's router, to providers and to endpoints of one's own, shared by all calls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from experts.remote import hub_internals
from experts.remote.blocking_calls import still_wanted
from experts.remote.settings import RemoteSettings
from services.common.errors import ModelFailed

if TYPE_CHECKING:
    from httpx2 import URL, AsyncClient, Client, Request, Response

_REDIRECTS = 3


@asynccontextmanager
async def opened(settings: RemoteSettings) -> AsyncIterator[None]:
    """Within the block the client asks through connections of ours; nothing is sent before it is asked."""
    from experts.endpoints import http_client

    seconds, most = settings.timeout_seconds, settings.reply_bytes
    loop = asyncio.get_running_loop()
    async with http_client.client(seconds=seconds, reply_bytes=most) as shared:

        def client() -> "AbstractAsyncContextManager[AsyncClient]":
            if asyncio.get_running_loop() is loop:
                return nullcontext(shared)
            return http_client.client(seconds=seconds, reply_bytes=most)  # connections belong to their loop

        hub_internals.ask_through(client, lambda: _fetching(settings))
        try:
            yield
        finally:
            hub_internals.ask_as_usual()


def _fetching(settings: RemoteSettings) -> "Client":
    """For results that a provider has ready somewhere: what it is given are addresses that the provider chose."""
    from httpx2 import URL, Client, Timeout

    from experts.endpoints import http_client

    asked = URL(hub_internals.router("any"))

    def sending(request: "Request") -> None:
        still_wanted()
        if not _same(request.url, asked):
            _check(request.url)
            request.headers.pop("authorization", None)

    def received(response: "Response") -> None:
        still_wanted()
        http_client.limit(response, settings.reply_bytes)

    return Client(
        timeout=Timeout(settings.timeout_seconds, connect=http_client.CONNECT_SECONDS),
        follow_redirects=True,
        max_redirects=_REDIRECTS,
        event_hooks={"request": [sending], "response": [received]},
        **http_client.habits(),
    )


def _same(one: "URL", other: "URL") -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _check(address: "URL") -> None:
    """Only what proves by its certificate who it is: no service of the house is asked in a provider's name."""
    if address.scheme != "https":
        what = f"the provider has its result at {address.host}, which is no public https address"
        raise ModelFailed(what, remedy="take another provider in REMOTE_PROVIDERS")
