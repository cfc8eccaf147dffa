"""Whether the services that a process calls can be reached: said while they cannot, and once they can again."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.supervision import supervise

log = structlog.get_logger(__name__)

FIRST_SECONDS = 5.0
"""Until the first look: of services that start together, some are there later."""

LOOK_SECONDS = 10.0
ANSWER_SECONDS = 5.0


@asynccontextmanager
async def watched(peers: Mapping[str, grpc.aio.Channel]) -> AsyncIterator[None]:
    """Looks at them until the block exits.

    Args:
        peers: channels by what is called there, as the log has it.
    """
    tasks = [
        asyncio.create_task(
            supervise(partial(_watch, name, channel), name=f"health of {name}", pause=LOOK_SECONDS),
            name=f"reach {name}",
        )
        for name, channel in peers.items()
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _watch(name: str, channel: grpc.aio.Channel) -> None:
    check: Any = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]  # missing in the types only
    missing = False
    await asyncio.sleep(FIRST_SECONDS)
    while True:
        was_missing, trouble = missing, await _trouble(check)
        missing = bool(trouble)
        if missing:
            log.warning("cannot be reached", peer=name, error=trouble, remedy="start it, or correct its address")
        elif was_missing:
            log.info("can be reached", peer=name)
        await asyncio.sleep(LOOK_SECONDS)


async def _trouble(check: Any) -> str:
    """Why there is no answer; empty if there is one, whatever it says."""
    try:
        await check(health_pb2.HealthCheckRequest(), timeout=ANSWER_SECONDS, wait_for_ready=False)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return ""
