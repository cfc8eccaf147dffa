"""A line to PostgreSQL: one connection, and what waits for it, in order."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import asyncpg
import structlog

from services.common.database.dsn import Connection, Place, failure
from services.common.errors import ServiceError, Unavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")

_AGAIN = 5
"""How often what the database has rolled back because of others is done again."""

Job = Callable[[Connection], Awaitable[T]]


class Line:
    """Does one job after the other on a connection, which is made when it is needed, and anew when it was lost."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._connection: Connection | None = None
        self._closed = False
        self._jobs: asyncio.Queue[tuple[Job[Any], asyncio.Future[Any]] | None] = asyncio.Queue()
        self._busy = False
        self._worker = asyncio.create_task(self._work(), name="database-line")

    def waiting(self) -> int:
        """How many jobs a new one would wait for."""
        return self._jobs.qsize() + self._busy

    def ask(self, job: Job[T]) -> "asyncio.Future[T]":
        """Does a job when those before it are done; cancelling the future does not stop it."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(Unavailable("the database is closed", remedy="ask another process"))
        else:
            self._jobs.put_nowait((job, future))
        return future

    async def close(self) -> None:
        """Does what it has been asked."""
        self._closed = True
        self._jobs.put_nowait(None)
        await self._worker

    async def _work(self) -> None:
        while asked := await self._jobs.get():
            job, future = asked
            self._busy = True
            try:
                if connection := await self._connected(future):
                    await self._do(job, connection, future)
            except Exception as error:  # the next jobs must not wait for ever behind it
                log.exception("database job failed unexpectedly")
                _settle(future, error)
            finally:
                self._busy = False
        if self._connection:
            self._connection.terminate()

    async def _connected(self, future: "asyncio.Future[Any]") -> Connection | None:
        """The connection; where there is none, nothing that waits would fare better now."""
        if self._connection is None or self._connection.is_closed():
            try:
                self._connection = await self._place.connect()
            except Exception as error:  # noqa: BLE001  # each waiting caller gets it
                unavailable = self._unavailable(error)
                for waiting in (future, *self._waiting()):
                    _settle(waiting, unavailable)
                return None
        return self._connection

    def _unavailable(self, error: Exception) -> Unavailable:
        """A failed connection attempt, as each waiting caller gets it."""
        if isinstance(error, ServiceError):
            return Unavailable(error.message, remedy=error.remedy)
        log.error("cannot connect to the database: unexpected error", database=self._place.text, exc_info=error)
        return Unavailable(
            f"cannot connect to the database at {self._place.text}: {error}",
            remedy="see this process's log for the complete error",
        )

    async def _do(self, job: Job[Any], connection: Connection, future: "asyncio.Future[Any]") -> None:
        for last in (False,) * _AGAIN + (True,):
            try:
                outcome = await job(connection)
            except asyncpg.TransactionRollbackError as error:
                outcome = failure(error, self._place.text)
                if not last:
                    continue
            except Exception as error:  # noqa: BLE001  # it is told to whoever asked
                outcome = failure(error, self._place.text)
                if type(outcome) is Unavailable:
                    connection.terminate()
            break
        _settle(future, outcome)

    def _waiting(self) -> "Iterator[asyncio.Future[Any]]":
        for _ in range(self._jobs.qsize()):
            if asked := self._jobs.get_nowait():
                yield asked[1]
            else:
                self._jobs.put_nowait(None)


def _settle(future: "asyncio.Future[Any]", outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
