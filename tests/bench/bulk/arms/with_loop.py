"""A loop in one process: the ceiling is its time divided by the cores."""

import sys

from tests.bench.bulk.arms.files import list_batches, write_results
from tests.bench.bulk.arms.work import load_work

if __name__ == "__main__":
    workload, folder, out = sys.argv[1:]
    work = load_work(workload)
    batches = list_batches(folder)
    results = (
        pair for files in batches for pair in zip(files, work([file.read_bytes() for file in files]), strict=True)
    )
    write_results(results, out)
