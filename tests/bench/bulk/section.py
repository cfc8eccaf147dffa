"""Bulk mode: pictures, documents and recordings, compared with a loop, a pool, Daft, Ray Data and our services."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from experts.bulk.job import PART_ROWS
from tests.bench.bulk.arms.work import COLOURS
from tests.bench.bulk.comparison import ArmRuns, compare
from tests.bench.bulk.data import link_pictures
from tests.bench.bulk.measure import Measurement, measure, run_until_killed
from tests.bench.bulk.results import count_results
from tests.bench.bulk.workloads import BULK, BY_NAME, DAFT, RAY_DATA, SERVICE, WORKLOADS, Workload
from tests.bench.processes import cores
from tests.bench.rows import Row, gap, median

CORES, ROUNDS, MANY = 2, 3, 20_000
COLD_FILES = 32
"""Files of the job that measures a cold start: enough that every program starts as many workers as for all files."""
RERUN_SECONDS, MEMORY_RATIO = 3.0, 1.15
KILLED = (DAFT, RAY_DATA, SERVICE)
"""Programs, in addition to bulk, that are killed at half."""


async def rows() -> list[Row]:
    with TemporaryDirectory(prefix="bench-bulk-") as folder, cores(CORES) as count:
        section = Section(Path(folder), count)
        measured = [row for workload in WORKLOADS for row in section.compare(workload)]
        return [*measured, *section.kill(BY_NAME[COLOURS]), *section.repeat(BY_NAME[COLOURS])]


class Section:
    """Runs the programs of the workloads.

    Args:
        folder: for files, models and results.
        cores: that the programs may use.
    """

    def __init__(self, folder: Path, cores: int) -> None:
        self._folder, self._cores = folder, cores
        self._arms: dict[str, dict[str, ArmRuns]] = {}
        models = folder / "models"
        self._environment = {
            "DO_NOT_TRACK": "1",
            "EXPERT_MODELS_URL": str(models),
            "HF_HOME": str(folder / "hub"),
            "HF_HUB_OFFLINE": "1",
        }
        if find_spec("torch"):
            command = (sys.executable, "-m", "tests.bench.bulk.models", str(models))
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    def compare(self, workload: Workload) -> list[Row]:
        """Runs a workload by all programs."""
        if workload.needs_torch and not find_spec("torch"):
            return [gap(f"bulk.{workload.name}_seconds_over_daft", "×", workload.over_daft, "torch is not installed")]
        files, few = self._write(workload, workload.count), self._write(workload, COLD_FILES)
        names = (BULK, DAFT, *workload.arms)
        cold = {name: self._run(name, workload, few) for name in names}
        runs: dict[str, list[Measurement]] = {name: [] for name in names}
        for name in (*(BULK, DAFT) * ROUNDS, *workload.arms):
            runs[name].append(self._run(name, workload, files))
        counts = {name: count_results(self._out(name, workload)) for name in names}
        arms = self._arms[workload.name] = {name: ArmRuns(runs[name], cold[name], counts[name]) for name in names}
        return compare(workload, arms, self._cores)

    def kill(self, workload: Workload) -> list[Row]:
        """Kills programs at half of a workload and runs them again."""
        files, half = self._write(workload, workload.count), workload.count // 2
        with self._start(BULK, workload, files) as job:
            assert job.stderr
            ended = next(done for line in job.stderr if (done := int(line.split()[0].replace(",", ""))) >= half)
        written = count_results(self._out(BULK, workload)).rows
        resumed = self._run(BULK, workload, files, is_new=False)
        repeated = f"had ended and were not written at kill -9 after {ended:,} of {workload.count:,}"
        about = "the same command after kill -9 at half"
        return [
            Row("bulk.repeated_after_kill", ended - written, "items", PART_ROWS, note=repeated),
            Row("bulk.resumed_after_kill_s", median([resumed.seconds]), "s", note=about),
            *(self._kill_other(name, workload, files, about) for name in KILLED),
        ]

    def _kill_other(self, name: str, workload: Workload, files: Path, about: str) -> Row:
        """Kills a program at half of its time, and runs it again."""
        with self._start(name, workload, files) as job, suppress(subprocess.TimeoutExpired):
            job.wait(self._arms[workload.name][name].seconds / 2)
        again = self._run(name, workload, files, is_new=False)
        note = f"{about}; then {count_results(self._out(name, workload)).rows:,} results"
        return Row(f"bulk.{name}_resumed_after_kill_s", median([again.seconds]), "s", note=note)

    def repeat(self, workload: Workload) -> list[Row]:
        """Runs programs that have a record of what is done again on the same files, then bulk on many files, twice."""
        many = self._folder / "many"
        files = self._write(workload, workload.count)
        link_pictures(many, files, MANY)
        again = {name: self._run(name, workload, files, is_new=False) for name in (BULK, SERVICE)}
        large, rerun = self._run(BULK, workload, many), self._run(BULK, workload, many, is_new=False)
        ratio = large.peak_mb / self._arms[workload.name][BULK].peak_mb
        peak = f"peak {large.peak_mb:.0f} MB; {MANY:,} files in {large.seconds:.0f} s"
        about = f"{workload.count:,} files, none changed"
        return [
            *(Row(f"bulk.{name}_rerun_s", median([run.seconds]), "s", note=about) for name, run in again.items()),
            Row(
                "bulk.rerun_20000_s", median([rerun.seconds]), "s", RERUN_SECONDS, note=f"{MANY:,} files, none changed"
            ),
            Row("bulk.memory_20000_over_2000", median([ratio]), "×", MEMORY_RATIO, note=peak),
        ]

    def _write(self, workload: Workload, count: int) -> Path:
        """Returns the folder of so many files of a workload; writes them if they do not exist."""
        folder = self._folder / f"{workload.write.__name__}-{count}"
        if not folder.exists():
            folder.mkdir()
            workload.write(folder, count)
        return folder

    def _out(self, name: str, workload: Workload) -> Path:
        return self._folder / f"{workload.name}-{name}"

    def _run(self, name: str, workload: Workload, files: Path, *, is_new: bool = True) -> Measurement:
        return measure(self._command(name, workload, files, is_new=is_new), self._environment)

    def _start(self, name: str, workload: Workload, files: Path) -> AbstractContextManager["subprocess.Popen[str]"]:
        return run_until_killed(self._command(name, workload, files, is_new=True), self._environment)

    def _command(self, name: str, workload: Workload, files: Path, *, is_new: bool) -> Sequence[str]:
        out = self._out(name, workload)
        if is_new and out.is_dir():
            shutil.rmtree(out)
        if name != BULK:
            return (sys.executable, "-m", f"tests.bench.bulk.arms.with_{name}", workload.name, str(files), str(out))
        job = {"pipeline": workload.pipeline, "experts": workload.experts, "sources": [str(files)], "to": f"{out}/"}
        file = self._folder / "job.json"
        file.write_text(json.dumps(job), "utf-8")
        return (sys.executable, "-m", "experts.bulk", str(file))
