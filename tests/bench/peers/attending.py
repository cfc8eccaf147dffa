"""What all rivals of the orchestrator do: they read which scripts to run, and print how long each took."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

from tests.bench.shapes import Script, script

Play = Callable[[Script], Awaitable[None]]


async def attend(play: Play) -> None:
    """Until the input ends: of each line, a JSON list of scripts' words, all are run at once."""
    print(flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        taken = await asyncio.gather(*(_timed(play, script(words)) for words in json.loads(line)))
        print(json.dumps(taken), flush=True)


async def _timed(play: Play, given: Script) -> float:
    begun = time.perf_counter()
    await play(given)
    return time.perf_counter() - begun
