"""A TCP proxy to a server that tests can delay, break or close."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")

CHUNK_BYTES = 65_536


class FaultyProxy:
    """A TCP proxy to a port of this machine; its methods may be called from any thread.

    Args:
        port: Port of the server.
        loop: Event loop of the proxy.
    """

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self._port, self._loop = port, loop
        self._listening: asyncio.Server | None = None
        self._own_port = 0
        self._active: set[asyncio.StreamWriter] = set()
        self._break_after_bytes: int | None = None
        self._close_when_broken = False
        self.broken = threading.Event()
        """Set after a connection was broken by `break_after`."""
        self.delay = 0.0
        """Delay of responses in seconds."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._own_port}"

    def open(self) -> None:
        """Accepts connections."""
        if not self._listening:
            self._run(self._open())

    def close(self) -> None:
        """Rejects new connections and resets active ones."""
        self._run(self._close())

    def break_after(self, count: int, *, then_close: bool = False) -> None:
        """Resets the next connection that sends more than a number of bytes.

        Args:
            count: Number of bytes.
            then_close: Whether to reject connections afterwards.
        """
        self.broken.clear()
        self._break_after_bytes, self._close_when_broken = count, then_close

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self) -> None:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", self._own_port)
        self._own_port = self._listening.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._listening:
            self._listening.close()
            self._listening = None
        for writer in self._active:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        ends = {writer, server_writer}
        self._active |= ends
        try:
            directions = [
                asyncio.ensure_future(self._up(reader, server_writer)),
                asyncio.ensure_future(self._down(server_reader, writer)),
            ]
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._active -= ends
            for each in directions:
                each.cancel()
            for end in ends:
                end.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = 0
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                sent += len(data)
                if self._break_after_bytes is not None and sent > self._break_after_bytes:
                    await self._break()
                    return
                writer.write(data)
                await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()

    async def _break(self) -> None:
        self._break_after_bytes = None
        if self._close_when_broken:
            await self._close()
        self.broken.set()


@contextmanager
def faulty_proxy(port: int) -> Iterator[FaultyProxy]:
    """Runs a proxy to a port of this machine on a separate thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = FaultyProxy(port, loop)
    try:
        proxy.open()
        yield proxy
        proxy.close()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
