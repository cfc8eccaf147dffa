"""Protocol of the programs compared with the orchestrator: they read scripts to run, and print the seconds of each."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

from tests.bench.shapes import Script, parse_script

RunScript = Callable[[Script], Awaitable[None]]


async def serve_runs(run_script: RunScript) -> None:
    """Reads lines until the end of the input; each is a JSON list of scripts' requests, which run concurrently."""
    print(flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        scripts = [parse_script(request) for request in json.loads(line)]
        taken = await asyncio.gather(*(_timed(run_script, script) for script in scripts))
        print(json.dumps(taken), flush=True)


async def _timed(run_script: RunScript, script: Script) -> float:
    started = time.perf_counter()
    await run_script(script)
    return time.perf_counter() - started
