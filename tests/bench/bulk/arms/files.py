"""Files of a folder in batches, and results as lines of JSON, for programs without a framework that has both."""

import json
from collections.abc import Iterable
from pathlib import Path

from tests.bench.bulk.arms.work import Result

BATCH = 16
"""Files in a batch: of 300, each core has several."""


def list_batches(folder: str) -> list[list[Path]]:
    files = sorted(Path(folder).iterdir())
    return [files[start : start + BATCH] for start in range(0, len(files), BATCH)]


def write_results(results: Iterable[tuple[Path, Result]], out: str) -> None:
    with Path(out).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"path": str(path), **result}) + "\n" for path, result in results)
