"""A job for Daft as its guides write one: a class that loads the model, in a process for each core."""

import sys
from typing import Any

import daft
from daft import DataType, col

from experts.host.devices import usable_cores
from tests.bench.bulk.arms.files import BATCH
from tests.bench.bulk.arms.work import Result, load_work

RESULT = DataType.struct({"text": DataType.string(), "error": DataType.string()})


@daft.cls(max_concurrency=usable_cores(), use_process=True)
class Worker:
    def __init__(self, workload: str) -> None:
        self._work = load_work(workload)

    @daft.method.batch(return_dtype=RESULT, unnest=True, batch_size=BATCH)
    def run(self, contents: daft.Series) -> list[Result]:
        return self._work(contents.to_pylist())


if __name__ == "__main__":
    workload, folder, out = sys.argv[1:]
    frame = daft.from_glob_path(f"{folder}/*")
    frame = frame.with_column("content", col("path").download())
    run: Any = Worker(workload).run  # of columns, although it is declared for their values
    frame.select("path", "size", run(col("content"))).write_parquet(out)
