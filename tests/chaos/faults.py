"""Strikes at random: kills, stops, pauses, locks."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from tests.chaos.databases import Store
from tests.chaos.processes import Member

Deed = Callable[[], Awaitable[object]]
Deeds = Mapping[str, tuple[int, Deed]]
"""What can be done, and how likely each of it is."""


async def rage(
    deeds: Deeds, random: Random, tally: Counter[str], over: asyncio.Event, log: Path, *, pause: float
) -> None:
    """Does one thing after another until it is over; nothing is left half done.

    Args:
        deeds: one is chosen each time.
        random: chooses.
        tally: counts what was done.
        over: set from outside.
        log: told of every deed, when it begins and ends.
        pause: mean time between two deeds, in seconds.
    """
    names, weights = list(deeds), [weight for weight, _ in deeds.values()]
    while not await _over_within(over, random.uniform(0.2, 1.8) * pause):
        name = random.choices(names, weights=weights)[0]
        tally[name] += 1
        begun = time.time()
        await deeds[name][1]()
        with log.open("a", encoding="utf-8") as told:
            told.write(f"{begun:.3f} to {time.time():.3f} {name}\n")


def against_orchestrators(members: Sequence[Member], lease_seconds: float, random: Random) -> Deeds:
    """What befalls the replicas; a pause outlasts the lease."""

    async def kill() -> None:
        member = random.choice(members)
        await member.kill()
        await asyncio.sleep(random.choice((0, 0, 1.5 * lease_seconds)))
        await member.start(ready=False)

    async def kill_all() -> None:
        await asyncio.gather(*(member.kill() for member in members))
        await asyncio.gather(*(member.start(ready=False) for member in members))

    async def stop() -> None:
        member = random.choice(members)
        if random.choice((True, False)):
            await member.ready()
        await member.stop()
        await member.start(ready=False)

    async def pause() -> None:
        await _paused(random.choice(members), random.uniform(1.2, 2.0) * lease_seconds)

    async def pause_and_kill() -> None:
        paused, killed = random.sample(members, 2)
        await asyncio.gather(_paused(paused, random.uniform(1.2, 2.0) * lease_seconds), killed.kill())
        await killed.start(ready=False)

    return {
        "orchestrator killed": (4, kill),
        "both orchestrators killed": (1, kill_all),
        "orchestrator stopped": (3, stop),
        "orchestrator paused": (3, pause),
        "one paused, one killed": (1, pause_and_kill),
    }


def against_experts(members: Sequence[Member], random: Random) -> Deeds:
    """What befalls the experts."""

    async def kill() -> None:
        member = random.choice(members)
        await member.kill()
        await asyncio.sleep(random.uniform(0, 1))
        await member.start(ready=False)

    async def pause() -> None:
        await _paused(random.choice(members), random.uniform(0.2, 1.5))

    return {"expert killed": (3, kill), "expert paused": (1, pause)}


def against_journal(store: Store, random: Random) -> Deeds:
    """What befalls the journal."""

    async def lock() -> None:
        await store.lock(random.uniform(0.05, 0.5))

    return {"journal locked": (3, lock), "journal's connections cut": (store.connected, store.sever)}


async def _paused(member: Member, seconds: float) -> None:
    member.pause()
    try:
        await asyncio.sleep(seconds)
    finally:
        member.resume()


async def _over_within(over: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await over.wait()
    except TimeoutError:
        return False
