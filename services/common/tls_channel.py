"""A channel that shows the certificate of its process as that is now, to whoever it connects to next."""

import asyncio
from collections.abc import Callable
from typing import Any, Self
from weakref import WeakSet

import grpc

from services.common.tls import Shown

ENDING_SECONDS = 24 * 3600.0
"""Longest that calls under way stay on connections made with the certificate before."""

Open = Callable[[grpc.ChannelCredentials], grpc.aio.Channel]


class Renewing(grpc.aio.Channel):
    """A channel that is replaced when the certificate has been; calls under way end where they began.

    Args:
        opened: a channel with these credentials.
        shown: what this process shows.
    """

    def __init__(self, opened: Open, shown: Shown) -> None:
        self._opened, self._shown = opened, shown
        self._credentials = shown.credentials()
        self._channel = opened(self._credentials)
        self._ending: set[asyncio.Task[None]] = set()
        self._calls: WeakSet[grpc.aio.Call] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)
        for call in list(self._calls):
            call.cancel()
        await asyncio.gather(*self._ending)

    def latest(self) -> grpc.aio.Channel:
        """The one for a new call."""
        credentials = self._shown.credentials()
        if credentials is not self._credentials:
            task = asyncio.create_task(self._channel.close(ENDING_SECONDS), name="connections before a renewal")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            self._credentials, self._channel = credentials, self._opened(credentials)
        return self._channel

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # as in gRPC
        return self.latest().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self.latest().channel_ready()

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._each_time("unary_unary", arguments, options)

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._each_time("unary_stream", arguments, options)

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._each_time("stream_unary", arguments, options)

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._each_time("stream_stream", arguments, options)

    def _each_time(self, kind: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Callable[..., Any]:
        """A method that is called on the latest channel."""
        made_on: grpc.aio.Channel | None = None
        method: Any = None

        def call(*given: Any, **named: Any) -> Any:
            nonlocal made_on, method
            channel = self.latest()
            if channel is not made_on:
                made_on, method = channel, getattr(channel, kind)(*arguments, **options)
            made = method(*given, **named)
            self._calls.add(made)
            return made

        return call
