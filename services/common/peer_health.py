"""Monitoring of the services that a process calls: logs when one becomes unreachable and when it is reachable again."""

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

STARTUP_SECONDS = 5.0
"""Until the first check, since services that start together are not ready at the same time."""

INTERVAL_SECONDS = 10.0
TIMEOUT_SECONDS = 5.0


@asynccontextmanager
async def monitor_peers(peers: Mapping[str, grpc.aio.Channel]) -> AsyncIterator[None]:
    """Checks peers periodically until the block exits.

    Args:
        peers: channels by the peers' names in the log.
    """
    tasks = [
        asyncio.create_task(
            supervise(partial(_monitor, name, channel), name=f"health of {name}", pause=INTERVAL_SECONDS),
            name=f"monitor {name}",
        )
        for name, channel in peers.items()
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _monitor(name: str, channel: grpc.aio.Channel) -> None:
    check: Any = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]  # missing in the types only
    was_reachable = True
    await asyncio.sleep(STARTUP_SECONDS)
    while True:
        error = await _error(check)
        if error:
            log.warning("peer unreachable", peer=name, error=error, remedy="start it, or correct its address")
        elif not was_reachable:
            log.info("peer reachable", peer=name)
        was_reachable = not error
        await asyncio.sleep(INTERVAL_SECONDS)


async def _error(check: Any) -> str:
    """Why a peer does not answer; empty if it answers, whatever its status."""
    try:
        await check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_SECONDS, wait_for_ready=False)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return ""
