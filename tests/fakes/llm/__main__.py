"""Runs a scripted LLM server from a shell: prints the settings that use it, and serves until interrupted."""

import argparse
import asyncio
import contextlib
import json
from pathlib import Path

from tests.fakes.llm.plausible import PlausibleScript
from tests.fakes.llm.server import ScriptedLLM


async def main(port: int, context: int | None, script: PlausibleScript) -> None:
    """Serves until it is interrupted."""
    async with ScriptedLLM.serving(script, port=port, context=context) as server:
        print(f"export LLM_BASE_URL={server.base_url} LLM_MODEL=scripted LLM_INTERNAL=true", flush=True)
        while body := await server.arrivals.get():
            print(f"request {len(server.requests)}: {sum(len(one['content']) for one in body['messages'])} characters")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.llm", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: a free port")
    parser.add_argument("--context", type=int, help="maximum tokens of a prompt; earlier tokens are dropped silently")
    parser.add_argument("--plan", type=Path, help="JSON file with the plan for every request")
    parser.add_argument("--tokens-per-second", type=float, default=40.0)
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        plan = json.loads(arguments.plan.read_text(encoding="utf-8")) if arguments.plan else None
        script = PlausibleScript(plan, arguments.tokens_per_second)
        asyncio.run(main(arguments.port, arguments.context, script))
