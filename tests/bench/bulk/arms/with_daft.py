"""A job for Daft as its guides write one: a class with a batch method, in a process for each core."""

import os
import sys
from typing import Any

import daft
from daft import DataType, col

from tests.bench.bulk.arms.task import mean_colours

RESULT = DataType.struct({"text": DataType.string(), "error": DataType.string()})


@daft.cls(max_concurrency=os.cpu_count(), use_process=True)
class Colours:
    @daft.method.batch(return_dtype=RESULT, unnest=True, batch_size=32)
    def run(self, contents: daft.Series) -> list[dict[str, Any]]:
        return [mean_colours(content) for content in contents.to_pylist()]


if __name__ == "__main__":
    frame = daft.from_glob_path(f"{sys.argv[1]}/*.jpg")
    frame = frame.with_column("content", col("path").download())
    run: Any = Colours().run  # of columns, although it is declared for their values
    frame.select("path", "size", run(col("content"))).write_parquet(sys.argv[2])
