"""Access to the gateway's database for the operator."""

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.auth.audit import Actor
from gateway.auth.identity import TENANT
from gateway.cli.errors import USAGE, Problem
from gateway.database import gateway_store
from services.common.database import Database
from services.common.errors import InvalidRequest, ServiceError
from services.common.settings import home

T = TypeVar("T")


def run_on_database(database_url: str | None, work: Callable[[Database], Awaitable[T]]) -> T:
    """Runs `work` on the database and returns its result.

    Args:
        database_url: file or URL of the database; None for the default.
        work: what to run.

    Raises:
        Problem: the database cannot be opened, or the work fails.
    """

    async def run() -> T:
        async with gateway_store(database_url or str(home() / "gateway.sqlite")) as database:
            return await work(database)

    try:
        return asyncio.run(run())
    except ServiceError as error:
        status = {"status": USAGE} if isinstance(error, InvalidRequest) else {}
        raise Problem(error.message, remedy=error.remedy, **status) from error


def operator() -> Actor:
    """The user who runs this command, for the audit log."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run as a user id without a name
        user = "unknown"
    return Actor(TENANT, f"operator:{user}")
