"""HTTP transports of the clients: synchronous and asyncio."""

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
from gateway.client.connection import Connection, RetryPolicy
from gateway.client.errors import Refused, refusal
from gateway.client.request_body import OnSent
from gateway.client.streams import EventSource

T = TypeVar("T")


class Transport:
    """Synchronous transport."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        verify: ssl.SSLContext | bool = True,
        on_sent: OnSent | None = None,
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
        """Checks, without retries, that a gateway answers.

        Raises:
            Unreachable: nothing listens at the address.
            NoGateway: the server is not a gateway.
        """
        reply, failed = None, None
        try:
            reply = self._http.get(**calls.GREETING)
        except httpx.TransportError as error:
            failed = error
        calls.check_greeting(self.url, reply, failed)

    def _do(self, call: Call[T]) -> T:
        retry_policy = RetryPolicy(self.url)
        while True:
            try:
                return call.answer(self._http.send(call.request(self._http)))
            except (httpx.TransportError, Refused) as error:
                pause = retry_policy.pause(error, repeatable=call.repeatable)
            time.sleep(pause)

    def _follow(self, source: EventSource[T]) -> Iterator[T]:
        while not source.is_finished:
            broken: Exception | None = None
            try:
                with self._open_stream(source.call()) as reply:
                    yield from _new_events(reply, source)
            except (httpx.TransportError, Refused) as error:
                broken = error
            if not source.is_finished:
                time.sleep(source.pause(broken))

    @contextmanager
    def _open_stream(self, call: Call[Any]) -> Iterator[httpx.Response]:
        reply = self._http.send(call.request(self._http), stream=True, follow_redirects=True)
        with closing(reply):
            if not reply.is_success:
                reply.read()
                raise refusal(reply)
            yield reply


def _new_events(reply: httpx.Response, source: EventSource[T]) -> Iterator[T]:
    """Yields the new events of a reply."""
    source.begin_stream(reply)
    for line in reply.iter_lines():
        if (event := source.take(line)) is not None:
            yield event
        if source.is_finished:
            return
    source.end_stream()


class AsyncTransport:
    """Transport on asyncio."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        verify: ssl.SSLContext | bool = True,
        on_sent: OnSent | None = None,
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
        """Checks, without retries, that a gateway answers.

        Raises:
            Unreachable: nothing listens at the address.
            NoGateway: the server is not a gateway.
        """
        reply, failed = None, None
        try:
            reply = await self._http.get(**calls.GREETING)
        except httpx.TransportError as error:
            failed = error
        calls.check_greeting(self.url, reply, failed)

    async def _do(self, call: Call[T]) -> T:
        retry_policy = RetryPolicy(self.url)
        while True:
            try:
                return call.answer(await self._http.send(call.request(self._http)))
            except (httpx.TransportError, Refused) as error:
                pause = retry_policy.pause(error, repeatable=call.repeatable)
            await asyncio.sleep(pause)

    async def _follow(self, source: EventSource[T]) -> AsyncGenerator[T, None]:
        while not source.is_finished:
            broken: Exception | None = None
            try:
                async with (
                    self._open_stream(source.call()) as reply,
                    aclosing(_new_events_async(reply, source)) as events,
                ):
                    async for event in events:
                        yield event
            except (httpx.TransportError, Refused) as error:
                broken = error
            if not source.is_finished:
                await asyncio.sleep(source.pause(broken))

    @asynccontextmanager
    async def _open_stream(self, call: Call[Any]) -> AsyncIterator[httpx.Response]:
        reply = await self._http.send(call.request(self._http), stream=True, follow_redirects=True)
        async with aclosing(reply):
            if not reply.is_success:
                await reply.aread()
                raise refusal(reply)
            yield reply


async def _new_events_async(reply: httpx.Response, source: EventSource[T]) -> AsyncGenerator[T, None]:
    """Yields the new events of a reply."""
    source.begin_stream(reply)
    async for line in reply.aiter_lines():
        if (event := source.take(line)) is not None:
            yield event
        if source.is_finished:
            return
    source.end_stream()
