"""Runs a bulk job: python -m experts.bulk JOB. `hugginggpt bulk` writes the file and starts this process."""

import argparse
import json
import os
import signal
import sys
import traceback
from contextlib import closing, redirect_stdout
from datetime import timedelta
from logging import CRITICAL, getLogger
from pathlib import Path

from experts.bulk.job import Job, read_job
from experts.bulk.progress import Progress
from experts.bulk.runner import run_job
from experts.bulk.summary import Summary
from services.common import logging
from services.common.errors import InvalidRequest, NotFound, ServiceError

FAILED, USAGE = 1, 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experts.bulk", description="Runs a bulk job.")
    parser.add_argument("job", type=Path, help="job file; experts/bulk/README.md describes it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: rows that have ended are written
    logging.setup("bulk", level="WARNING", style="pretty")
    getLogger("daft_local_execution").setLevel(CRITICAL)  # its errors are raised, too
    try:
        job = read_job(options.job)
        with closing(Progress(is_silent=job.as_json)) as progress, redirect_stdout(sys.stderr):
            summary = run_job(job, progress)
    except ServiceError as error:
        sys.stderr.write("\n  ".join(filter(None, (f"error: {error.message}", error.remedy))) + "\n")
        return USAGE if isinstance(error, InvalidRequest | NotFound) else FAILED
    sys.stdout.write(json.dumps(summary.to_json()) + "\n" if job.as_json else _describe(job, summary))
    return summary.status


def _describe(job: Job, summary: Summary) -> str:
    """Returns the summary for people."""
    lines = [f"{summary.pipeline}: {', '.join(summary.models)}"]
    counts = [f"{summary.done:,} done", f"{summary.failed:,} of them failed" if summary.failed else ""]
    counts += [f"{summary.skipped:,} up to date" if summary.skipped else ""]
    lines.append(f"{summary.inputs:,} inputs: {', '.join(filter(None, counts))}, in {summary.seconds:.1f} s")
    if summary.forecast:
        forecast = summary.forecast
        time_left = timedelta(seconds=round(forecast["seconds"]))
        gpu = f", {forecast['gpu_hours']:g} GPU hours" if forecast["gpu_hours"] else ""
        cost = f", cost {forecast['cost']:g}" if "cost" in forecast else ""
        pending = f"{forecast['rows']:,.0f} inputs without an up-to-date result"
        lines.append(f"forecast for {pending}: {time_left}{gpu}{cost}; nothing was written")
    elif summary.done:
        lines.append(f"results: {job.to}")
    if summary.is_stopped:
        lines.append("stopped: too many errors. Rows that had ended are in the results; the same command continues.")
    if summary.is_interrupted:
        lines.append("interrupted: rows that had ended are in the results; the same command continues.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    status = FAILED
    try:
        status = main()
    except Exception:  # noqa: BLE001  # an error of this program
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(status)  # the interpreter's teardown aborts while threads of Daft run
