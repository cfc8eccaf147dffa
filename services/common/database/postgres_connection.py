"""PostgreSQL connections: the address of a database, translation of its errors, and a worker that owns a connection."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import asyncpg
import structlog

from services.common.database.queries import ConstraintViolation
from services.common.errors import FailedPrecondition, InvalidRequest, ServiceError, Unavailable

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

log = structlog.get_logger(__name__)

T = TypeVar("T")

CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 10.0
"""Timeout of one statement, after which the connection is considered lost."""
IDLE_SECONDS = 10.0
"""Timeout of an idle transaction, after which the server rolls it back and releases its locks."""

ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""Everything that the driver raises."""

_ATTEMPTS = 6
"""How often an operation is tried that the server rolls back because of concurrent ones."""

_DENIED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
_UNAVAILABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TransactionRollbackError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.LockNotAvailableError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # from a connection that broke while idle, until the driver has noticed
    OSError,
    TimeoutError,
)

Job = Callable[[Connection], Awaitable[T]]


_SET = "SELECT set_config('search_path', $1, false), set_config('idle_in_transaction_session_timeout', $2, false)"
"""Not in the startup message, whose settings PgBouncer refuses."""


class PostgresAddress:
    """A schema in a PostgreSQL database.

    Args:
        url: postgresql://user:password@host:port/name.
        schema: name of the schema.

    Raises:
        InvalidRequest: the URL is malformed.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self._url = url
        try:
            parts = urlsplit(url)
            self.text = f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"
            """Host, port and name without credentials, for messages."""
        except ValueError as error:
            raise _malformed() from error

    async def connect(self, *, statement_timeout: bool = True) -> Connection:
        """Opens a connection.

        Args:
            statement_timeout: limits statements to COMMAND_SECONDS.

        Raises:
            Unavailable: the server cannot be reached, or accepts no connection now.
            FailedPrecondition: DATABASE, the server denies access, or the database does not exist.
            InvalidRequest: the URL is malformed.
        """
        try:
            connection = await asyncpg.connect(
                self._url,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS if statement_timeout else None,
                server_settings={"application_name": "hugginggpt"},
            )
            try:
                await connection.execute(_SET, self.schema, f"{IDLE_SECONDS * 1000:.0f}", timeout=CONNECT_SECONDS)
            except BaseException:
                connection.terminate()
                raise
        except ValueError as error:
            raise _malformed() from error
        except ERRORS as error:
            raise translate_error(error, self.text) from error
        return connection


def translate_error(error: Exception, address: str) -> Exception:
    """The ServiceError or ConstraintViolation for an error of the driver; other exceptions unchanged."""
    if isinstance(error, _DENIED):
        return FailedPrecondition(
            f"the database at {address} denies access: {error}",
            reason="DATABASE",
            remedy="check user, password and name in its URL, and that the user may create a schema",
        )
    if isinstance(error, _UNAVAILABLE):
        return Unavailable(
            f"the database at {address} does not answer: {str(error) or 'the request timed out'}",
            remedy="check that it runs, that it can be reached from here, and that its disk has space",
        )
    if isinstance(error, (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError)):
        return ConstraintViolation(str(error))
    if isinstance(error, ERRORS):  # an error of the server or its schema, not of the operation, as with SQLite
        return Unavailable(
            f"the database at {address} failed: {error}", remedy="check the PostgreSQL server's log, and its tables"
        )
    return error


class ConnectionWorker:
    """Runs jobs one after the other on a connection, which it opens on demand and again after it was lost."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._connection: Connection | None = None
        self._is_closed = False
        self._jobs: asyncio.Queue[tuple[Job[Any], asyncio.Future[Any]] | None] = asyncio.Queue()
        self._is_busy = False
        self._worker = asyncio.create_task(self._work(), name="database-connection")

    def queue_length(self) -> int:
        """Number of jobs that a new one would wait for."""
        return self._jobs.qsize() + self._is_busy

    def submit(self, job: Job[T]) -> "asyncio.Future[T]":
        """Queues a job; cancelling the future does not stop it."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            future.set_exception(Unavailable("the database is closed", remedy="send the request again"))
        else:
            self._jobs.put_nowait((job, future))
        return future

    async def close(self) -> None:
        """Finishes the queued jobs, then closes the connection."""
        self._is_closed = True
        self._jobs.put_nowait(None)
        await self._worker

    async def _work(self) -> None:
        while queued := await self._jobs.get():
            job, future = queued
            self._is_busy = True
            try:
                if connection := await self._connect(future):
                    await self._run(job, connection, future)
            except Exception as error:  # later jobs must not wait for ever
                log.exception("database job failed unexpectedly")
                _resolve(future, error)
            finally:
                self._is_busy = False
        if self._connection:
            self._connection.terminate()

    async def _connect(self, future: "asyncio.Future[Any]") -> Connection | None:
        """The connection; if there is none, fails this and all queued jobs, which would fail as well."""
        if self._connection is None or self._connection.is_closed():
            try:
                self._connection = await self._address.connect()
            except Exception as error:  # noqa: BLE001  # passed to every waiting caller
                unavailable = self._to_unavailable(error)
                for waiting in (future, *self._dequeue_all()):
                    _resolve(waiting, unavailable)
                return None
        return self._connection

    def _to_unavailable(self, error: Exception) -> Unavailable:
        """A failed connection attempt, for waiting callers."""
        if isinstance(error, ServiceError):
            return Unavailable(error.message, remedy=error.remedy)
        log.error("cannot connect to the database: unexpected error", database=self._address.text, exc_info=error)
        return Unavailable(
            f"cannot connect to the database at {self._address.text}: {error}",
            remedy="see this process's log for the complete error",
        )

    async def _run(self, job: Job[Any], connection: Connection, future: "asyncio.Future[Any]") -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                outcome = await job(connection)
            except asyncpg.TransactionRollbackError as error:
                outcome = translate_error(error, self._address.text)
                if attempt < _ATTEMPTS:
                    continue
            except Exception as error:  # noqa: BLE001  # passed to the caller
                outcome = translate_error(error, self._address.text)
                if type(outcome) is Unavailable:
                    connection.terminate()
            break
        _resolve(future, outcome)

    def _dequeue_all(self) -> "Iterator[asyncio.Future[Any]]":
        for _ in range(self._jobs.qsize()):
            if queued := self._jobs.get_nowait():
                yield queued[1]
            else:
                self._jobs.put_nowait(None)


def _resolve(future: "asyncio.Future[Any]", outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _malformed() -> InvalidRequest:
    return InvalidRequest(
        "the database's URL is malformed",
        remedy="give it as postgresql://user:password@host:5432/name, special characters as %XX",
    )
