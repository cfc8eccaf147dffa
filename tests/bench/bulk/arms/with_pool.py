"""A pool of processes of the standard library, one for each core."""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.bench.bulk.arms.task import mean_colours


def run(file: Path) -> dict[str, str | None]:
    return {"path": str(file), **mean_colours(file.read_bytes())}


if __name__ == "__main__":
    files = sorted(Path(sys.argv[1]).glob("*.jpg"))
    with ProcessPoolExecutor() as pool:
        rows = pool.map(run, files, chunksize=16)
        Path(sys.argv[2]).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
