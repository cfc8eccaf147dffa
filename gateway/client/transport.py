"""What carries calls to a gateway and its replies back, for programs that wait and for those on asyncio."""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from gateway.client import calls
from gateway.client.calls import Call
from gateway.client.connection import Connection
from gateway.client.errors import Refused, refusal
from gateway.client.request_body import Sent
from gateway.client.retry import Patience
from gateway.client.streams import Place

T = TypeVar("T")


class Wire:
    """A connection of a program that waits."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        verify: ssl.SSLContext | bool = True,
        on_sent: Sent | None = None,
    ) -> None:
        connection = Connection.to(url, api_key, verify=verify)
        self.url = connection.url
        self._on_sent = on_sent
        self._http = httpx.Client(**connection.settings())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def greet(self) -> None:
        """Makes sure, without trying again, that a gateway answers.

        Raises:
            Unreachable: nothing listens at the address.
            NoGateway: something else does.
        """
        reply, failed = None, None
        try:
            reply = self._http.get(**calls.GREETING)
        except httpx.TransportError as error:
            failed = error
        calls.greeted(self.url, reply, failed)

    def _do(self, call: Call[T]) -> T:
        patience = Patience(self.url)
        while True:
            try:
                return call.answer(self._http.send(call.request(self._http)))
            except (httpx.TransportError, Refused) as error:
                pause = patience.pause(error, repeatable=call.repeatable)
            time.sleep(pause)

    def _followed(self, place: Place[T]) -> Iterator[T]:
        while not place.over:
            broken: Exception | None = None
            try:
                with self._streamed(place.call()) as reply:
                    yield from _told(reply, place)
            except (httpx.TransportError, Refused) as error:
                broken = error
            if not place.over:
                time.sleep(place.pause(broken))

    @contextmanager
    def _streamed(self, call: Call[Any]) -> Iterator[httpx.Response]:
        reply = self._http.send(call.request(self._http), stream=True, follow_redirects=True)
        with closing(reply):
            if not reply.is_success:
                reply.read()
                raise refusal(reply)
            yield reply


def _told(reply: httpx.Response, place: Place[T]) -> Iterator[T]:
    """What this reply has that was not seen before."""
    place.opened(reply)
    for line in reply.iter_lines():
        if (thing := place.take(line)) is not None:
            yield thing
        if place.over:
            return
    place.closed()


class AsyncWire:
    """A connection of a program on asyncio."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        verify: ssl.SSLContext | bool = True,
        on_sent: Sent | None = None,
    ) -> None:
        connection = Connection.to(url, api_key, verify=verify)
        self.url = connection.url
        self._on_sent = on_sent
        self._http = httpx.AsyncClient(**connection.settings())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def greet(self) -> None:
        """Makes sure, without trying again, that a gateway answers.

        Raises:
            Unreachable: nothing listens at the address.
            NoGateway: something else does.
        """
        reply, failed = None, None
        try:
            reply = await self._http.get(**calls.GREETING)
        except httpx.TransportError as error:
            failed = error
        calls.greeted(self.url, reply, failed)

    async def _do(self, call: Call[T]) -> T:
        patience = Patience(self.url)
        while True:
            try:
                return call.answer(await self._http.send(call.request(self._http)))
            except (httpx.TransportError, Refused) as error:
                pause = patience.pause(error, repeatable=call.repeatable)
            await asyncio.sleep(pause)

    async def _followed(self, place: Place[T]) -> AsyncGenerator[T, None]:
        while not place.over:
            broken: Exception | None = None
            try:
                async with self._streamed(place.call()) as reply, aclosing(_told_async(reply, place)) as things:
                    async for thing in things:
                        yield thing
            except (httpx.TransportError, Refused) as error:
                broken = error
            if not place.over:
                await asyncio.sleep(place.pause(broken))

    @asynccontextmanager
    async def _streamed(self, call: Call[Any]) -> AsyncIterator[httpx.Response]:
        reply = await self._http.send(call.request(self._http), stream=True, follow_redirects=True)
        async with aclosing(reply):
            if not reply.is_success:
                await reply.aread()
                raise refusal(reply)
            yield reply


async def _told_async(reply: httpx.Response, place: Place[T]) -> AsyncGenerator[T, None]:
    """What this reply has that was not seen before."""
    place.opened(reply)
    async for line in reply.aiter_lines():
        if (thing := place.take(line)) is not None:
            yield thing
        if place.over:
            return
    place.closed()
