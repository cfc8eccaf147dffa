"""A job for Ray Data as its guides write one: a class that loads the model, called with batches."""

import sys
from typing import Any

import numpy as np
import ray

from experts.host.devices import usable_cores
from tests.bench.bulk.arms.files import BATCH
from tests.bench.bulk.arms.work import load_work

ACTOR_CPUS = 0.5
"""Leaves a core to the tasks that read the files."""


class Worker:
    def __init__(self, workload: str) -> None:
        self._work = load_work(workload)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        results = self._work(batch["bytes"])
        columns = {name: np.array([row[name] for row in results], dtype=object) for name in ("text", "error")}
        return {"path": batch["path"], **columns}


if __name__ == "__main__":
    workload, folder, out = sys.argv[1:]
    cores = usable_cores()
    ray.init(num_cpus=cores, include_dashboard=False, logging_level="ERROR")
    files = ray.data.read_binary_files(folder, include_paths=True)
    files.map_batches(
        Worker, fn_constructor_args=(workload,), concurrency=cores, num_cpus=ACTOR_CPUS, batch_size=BATCH
    ).write_parquet(out)
