"""`make chaos`: the fault campaign; prints a tally, writes out/chaos.json, ends with status 1 if anything was wrong."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from secrets import randbelow
from shutil import rmtree
from tempfile import mkdtemp

from services.common import logging
from tests.chaos.campaign import Campaign, Outcome
from tests.chaos.databases import BACKENDS

OUT = Path("out/chaos.json")
SEEDS = 1_000_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=randbelow(SEEDS), help="gives the same runs and strikes again")
    parser.add_argument("--runs", type=int, default=1_000, help="on each back end (default: 1000)")
    parser.add_argument("--backend", choices=list(BACKENDS), action="append", help="(default: all of them)")
    parser.add_argument("--at-once", type=int, default=16, help="runs under way at once (default: 16)")
    return parser.parse_args()


async def campaign(asked: argparse.Namespace, backend: str) -> Outcome:
    folder = Path(mkdtemp(prefix=f"chaos-{backend}-"))
    say(f"{backend}: {asked.runs} runs, seed {asked.seed}; logs in {folder}")
    async with BACKENDS[backend](folder) as store:
        outcome = await Campaign(
            asked.seed, asked.runs, backend, store, folder, at_once=asked.at_once, told=lambda line: say(f"  {line}")
        ).run()
    if not outcome.complaints:
        rmtree(folder)
    return outcome


def say(line: str) -> None:
    print(line, flush=True)


def show(outcome: Outcome) -> None:
    say(f"\n{outcome.backend}, seed {outcome.seed}: {outcome.runs} runs in {outcome.seconds} s")
    for name, count in sorted((+outcome.tally).items()):
        say(f"  {name:<60} {count:>7}")
    for complaint in outcome.complaints:
        say(f"  WRONG {complaint.splitlines()[0]}")
    if outcome.complaints:
        say(f"  again: python -m tests.chaos --seed {outcome.seed} --runs {outcome.runs} --backend {outcome.backend}")


def main() -> int:
    logging.setup("chaos", level="WARNING")
    asked = arguments()
    outcomes = []
    for backend in asked.backend or BACKENDS:
        outcomes.append(asyncio.run(campaign(asked, backend)))
        show(outcomes[-1])
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps([vars(outcome) for outcome in outcomes], indent=2, sort_keys=True) + "\n")
    return int(any(outcome.complaints for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
