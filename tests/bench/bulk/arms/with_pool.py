"""A pool of processes of the standard library, one for each core."""

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path

from experts.host.devices import usable_cores
from tests.bench.bulk.arms.files import list_batches, write_results
from tests.bench.bulk.arms.work import Result, Work, load_work

_works: list[Work] = []
"""The work of this process."""


def load(workload: str) -> None:
    _works.append(load_work(workload))


def run(files: Sequence[Path]) -> list[tuple[Path, Result]]:
    return list(zip(files, _works[0]([file.read_bytes() for file in files]), strict=True))


if __name__ == "__main__":
    workload, folder, out = sys.argv[1:]
    with ProcessPoolExecutor(usable_cores(), initializer=load, initargs=(workload,)) as pool:
        write_results(chain.from_iterable(pool.map(run, list_batches(folder))), out)
