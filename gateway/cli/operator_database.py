"""The gateway's database, worked on by the operator of its machine."""

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


def worked_on(place: str | None, work: Callable[[Database], Awaitable[T]]) -> T:
    """What the work gives, done on the database at a place or at the usual one.

    Raises:
        Problem: the database cannot be opened, or the work cannot be done.
    """

    async def done() -> T:
        async with gateway_store(place or str(home() / "gateway.sqlite")) as database:
            return await work(database)

    try:
        return asyncio.run(done())
    except ServiceError as error:
        status = {"status": USAGE} if isinstance(error, InvalidRequest) else {}
        raise Problem(error.message, remedy=error.remedy, **status) from error


def operator() -> Actor:
    """Whoever runs this command."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number that has no name
        user = "unknown"
    return Actor(TENANT, f"operator:{user}")
