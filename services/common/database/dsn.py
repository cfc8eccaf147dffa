"""Where a PostgreSQL database is, and what can be wrong with it."""

from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

import asyncpg

from services.common.database.queries import Contradiction
from services.common.errors import FailedPrecondition, InvalidRequest, Unavailable

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 10.0
"""How long one statement may take: longer, and the connection is taken for lost."""
IDLE_SECONDS = 10.0
"""How long a process may say nothing amid a transaction: longer, and the server ends that, for what it has locked."""

FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TransactionRollbackError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.LockNotAvailableError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # of a connection that was cut while idle, until its end is seen
    OSError,
    TimeoutError,
)


class Place:
    """A schema of a database, by the database's URL.

    Raises:
        InvalidRequest: the URL cannot be read.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self._url = url
        try:
            parts = urlsplit(url)
            self.text = f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"
            """Without user and password, for messages."""
        except ValueError as error:
            raise _unreadable() from error

    async def connect(self, *, patient: bool = False) -> Connection:
        """A new connection; what it is told may take any time if it is patient.

        Raises:
            Unavailable: there is none at the moment.
            FailedPrecondition: DATABASE, it does not take this user, or is not there.
            InvalidRequest: the URL cannot be read.
        """
        try:
            return await asyncpg.connect(
                self._url,
                timeout=CONNECT_SECONDS,
                command_timeout=None if patient else COMMAND_SECONDS,
                server_settings={
                    "search_path": self.schema,
                    "application_name": "hugginggpt",
                    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS * 1000:.0f}",
                },
            )
        except ValueError as error:
            raise _unreadable() from error
        except FAILURES as error:
            raise failure(error, self.text) from error


def failure(error: Exception, place: str) -> Exception:
    """What went wrong, as whoever asked is to be told."""
    if isinstance(error, _REFUSED):
        return FailedPrecondition(
            f"the database at {place} refuses: {error}",
            reason="DATABASE",
            remedy="check user, password and name in its URL, and that the user may create a schema",
        )
    if isinstance(error, _AWAY):
        return Unavailable(
            f"the database at {place} does not answer: {str(error) or 'it takes too long'}",
            remedy="check that it runs, that it is reached from here, and that its disk has room",
        )
    if isinstance(error, (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError)):
        return Contradiction(str(error))
    if isinstance(error, FAILURES):  # the server's or the schema's fault, as with SQLite: no fault of what was asked
        return Unavailable(
            f"the database at {place} fails: {error}", remedy="check the PostgreSQL server's log, and its tables"
        )
    return error


def _unreadable() -> InvalidRequest:
    return InvalidRequest(
        "the database's URL cannot be read",
        remedy="give it as postgresql://user:password@host:5432/name, special characters as %XX",
    )
