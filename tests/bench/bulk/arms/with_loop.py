"""A loop in one process: the ceiling is its time divided by the cores."""

import json
import sys
from pathlib import Path

from tests.bench.bulk.arms.task import mean_colours

if __name__ == "__main__":
    files = sorted(Path(sys.argv[1]).glob("*.jpg"))
    rows = ({"path": str(file), **mean_colours(file.read_bytes())} for file in files)
    Path(sys.argv[2]).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
