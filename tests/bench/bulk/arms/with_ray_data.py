"""A job for Ray Data as its guides write one: read_binary_files, and a function on batches."""

import sys
from typing import Any

import numpy as np
import ray

from tests.bench.bulk.arms.task import mean_colours


def run(batch: dict[str, Any]) -> dict[str, Any]:
    results = [mean_colours(content) for content in batch["bytes"]]
    columns = {name: np.array([row[name] for row in results], dtype=object) for name in ("text", "error")}
    return {"path": batch["path"], **columns}


if __name__ == "__main__":
    ray.init(include_dashboard=False, logging_level="ERROR")
    pictures = ray.data.read_binary_files(sys.argv[1], include_paths=True)
    pictures.map_batches(run, batch_size=32).write_parquet(sys.argv[2])
