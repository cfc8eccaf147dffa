"""`make chaos`: runs the fault campaign, prints a tally and writes out/chaos.json; exits with 1 if a run was wrong."""

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
    parser.add_argument(
        "--seed", type=int, default=randbelow(SEEDS), help="reproduces runs and faults (default: random)"
    )
    parser.add_argument("--runs", type=int, default=1_000, help="on each back end (default: 1000)")
    parser.add_argument("--backend", choices=list(BACKENDS), action="append", help="journal database (default: all)")
    parser.add_argument("--at-once", type=int, default=16, help="concurrent runs (default: 16)")
    return parser.parse_args()


async def campaign(options: argparse.Namespace, backend: str) -> Outcome:
    folder = Path(mkdtemp(prefix=f"chaos-{backend}-"))
    write(f"{backend}: {options.runs} runs, seed {options.seed}; logs in {folder}")
    async with BACKENDS[backend](folder) as store:
        outcome = await Campaign(
            options.seed,
            options.runs,
            backend,
            store,
            folder,
            concurrency=options.at_once,
            on_progress=lambda line: write(f"  {line}"),
        ).run()
    if not outcome.violations:
        rmtree(folder)
    return outcome


def write(line: str) -> None:
    print(line, flush=True)


def show(outcome: Outcome) -> None:
    write(f"\n{outcome.backend}, seed {outcome.seed}: {outcome.runs} runs in {outcome.seconds} s")
    for name, count in sorted((+outcome.tally).items()):
        write(f"  {name:<60} {count:>7}")
    for violation in outcome.violations:
        write(f"  WRONG {violation.splitlines()[0]}")
    if outcome.violations:
        command = f"python -m tests.chaos --seed {outcome.seed} --runs {outcome.runs} --backend {outcome.backend}"
        write(f"  to reproduce: {command}")


def main() -> int:
    logging.setup("chaos", level="WARNING")
    options = arguments()
    outcomes = []
    for backend in options.backend or BACKENDS:
        outcomes.append(asyncio.run(campaign(options, backend)))
        show(outcomes[-1])
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps([vars(outcome) for outcome in outcomes], indent=2, sort_keys=True) + "\n")
    return int(any(outcome.violations for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
