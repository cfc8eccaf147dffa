"""Whether the laptop install resolves from wheels on every Python and platform promised: `python -m tests.resolution`.

pip evaluates markers for the Python it runs on only; uv can be told another one. What a marker leaves out is printed,
so that what is absent where is there to read.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from importlib.metadata import metadata
from itertools import product

from packaging.requirements import Requirement

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "Linux x86-64": ("x86_64-manylinux_2_28", "Linux", "x86_64"),
    "Linux arm64": ("aarch64-manylinux_2_28", "Linux", "aarch64"),
    "macOS arm64": ("aarch64-apple-darwin", "Darwin", "arm64"),
    "macOS x86-64": ("x86_64-apple-darwin", "Darwin", "x86_64"),
}
AT_ONCE = 16
ENVIRONMENT = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"}
"""Engines have wheels for macOS 14 and later."""


async def resolved(python: str, platform: str, slots: asyncio.Semaphore) -> str:
    """What is wrong with the resolution for one target; empty if nothing is."""
    command = ["-m", "uv", "pip", "compile", "--quiet", "--no-header", "--extra", "laptop", "--only-binary", ":all:"]
    target = ["--python-version", python, "--python-platform", PLATFORMS[platform][0], "pyproject.toml"]
    async with slots, asyncio.timeout(300):
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, *target, env=ENVIRONMENT, stdout=PIPE, stderr=PIPE
        )
        _, error = await process.communicate()
    return error.decode().strip() if process.returncode else ""


def absent(python: str, platform: str) -> list[str]:
    """Requirements of the laptop extra that a marker leaves out there."""
    _, system, machine = PLATFORMS[platform]
    environment = {"python_version": python, "platform_system": system, "platform_machine": machine}
    requirements = [Requirement(text) for text in metadata("hugginggpt").get_all("Requires-Dist") or ()]
    extras = ("lite", "speech", "gateway", "laptop")
    return [
        requirement.name
        for requirement in requirements
        if requirement.marker
        and any(f'extra == "{extra}"' in str(requirement.marker) for extra in extras)
        and not any(requirement.marker.evaluate({**environment, "extra": extra}) for extra in extras)
    ]


async def main() -> int:
    slots = asyncio.Semaphore(AT_ONCE)
    targets = list(product(PYTHONS, PLATFORMS))
    problems = await asyncio.gather(*(resolved(python, platform, slots) for python, platform in targets))
    for (python, platform), problem in zip(targets, problems, strict=True):
        without = f" (without {', '.join(sorted(absent(python, platform)))})" if absent(python, platform) else ""
        print(f"{python}  {platform:<14} {'does not resolve' if problem else 'resolves' + without}")
    for (python, platform), problem in zip(targets, problems, strict=True):
        if problem:
            print(f"\n{python}  {platform}\n{problem}", file=sys.stderr)
    return 1 if any(problems) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
