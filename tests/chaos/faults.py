"""Random fault injection: kills, stops and pauses processes, locks the journal and cuts its connections."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from tests.chaos.databases import Store
from tests.chaos.processes import ManagedProcess

Fault = Callable[[], Awaitable[object]]
Faults = Mapping[str, tuple[int, Fault]]
"""Functions that inject faults, with their weights, by name."""


async def inject_faults(
    faults: Faults, random: Random, tally: Counter[str], stop: asyncio.Event, log: Path, *, pause: float
) -> None:
    """Injects one fault after the other until stopped; each fault is completed, including its recovery.

    Args:
        faults: to choose from.
        random: chooses faults and pauses.
        tally: counts faults by name.
        stop: ends the injection when set.
        log: file for the start and end of every fault.
        pause: mean time between two faults, in seconds.
    """
    names, weights = list(faults), [weight for weight, _ in faults.values()]
    while not await _is_set_within(stop, random.uniform(0.2, 1.8) * pause):
        name = random.choices(names, weights=weights)[0]
        tally[name] += 1
        started = time.time()
        await faults[name][1]()
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{started:.3f} to {time.time():.3f} {name}\n")


def orchestrator_faults(processes: Sequence[ManagedProcess], lease_seconds: float, random: Random) -> Faults:
    """Faults of orchestrators; a pause lasts longer than the lease."""

    async def kill() -> None:
        process = random.choice(processes)
        await process.kill()
        await asyncio.sleep(random.choice((0, 0, 1.5 * lease_seconds)))
        await process.start(ready=False)

    async def kill_all() -> None:
        await asyncio.gather(*(process.kill() for process in processes))
        await asyncio.gather(*(process.start(ready=False) for process in processes))

    async def stop() -> None:
        process = random.choice(processes)
        if random.choice((True, False)):
            await process.ready()
        await process.stop()
        await process.start(ready=False)

    async def pause() -> None:
        await _pause(random.choice(processes), random.uniform(1.2, 2.0) * lease_seconds)

    async def pause_and_kill() -> None:
        paused, killed = random.sample(processes, 2)
        await asyncio.gather(_pause(paused, random.uniform(1.2, 2.0) * lease_seconds), killed.kill())
        await killed.start(ready=False)

    return {
        "orchestrator killed": (4, kill),
        "both orchestrators killed": (1, kill_all),
        "orchestrator stopped": (3, stop),
        "orchestrator paused": (3, pause),
        "one paused, one killed": (1, pause_and_kill),
    }


def expert_faults(processes: Sequence[ManagedProcess], random: Random) -> Faults:
    """Faults of experts."""

    async def kill() -> None:
        process = random.choice(processes)
        await process.kill()
        await asyncio.sleep(random.uniform(0, 1))
        await process.start(ready=False)

    async def pause() -> None:
        await _pause(random.choice(processes), random.uniform(0.2, 1.5))

    return {"expert killed": (3, kill), "expert paused": (1, pause)}


def journal_faults(store: Store, random: Random) -> Faults:
    """Faults of the journal's database."""

    async def lock() -> None:
        await store.lock(random.uniform(0.05, 0.5))

    return {"journal locked": (3, lock), "journal connections cut": (store.has_connections, store.disconnect)}


async def _pause(process: ManagedProcess, seconds: float) -> None:
    process.pause()
    try:
        await asyncio.sleep(seconds)
    finally:
        process.resume()


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
