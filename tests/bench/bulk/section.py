"""Bulk mode: a task of a few milliseconds over 2,000 pictures, compared with a loop, a pool, Daft and Ray Data."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from tests.bench.bulk.data import draw_pictures, link_pictures
from tests.bench.bulk.measure import Measurement, measure
from tests.bench.rows import Row, median

PICTURES, MANY, ROUNDS = 2_000, 20_000, 3
OVER_DAFT, RERUN_SECONDS, MEMORY_RATIO = 1.25, 3.0, 1.15
"""Targets; the first allows for digests and the columns of the record."""
EXPERT = Path(__file__).parent / "pictures"
PLAN = [{"id": 1, "task": "mean-colours", "args": {"image": {"input": "image"}}}]


async def rows() -> list[Row]:
    with TemporaryDirectory(prefix="bench-bulk-") as folder:
        return _measure(Path(folder))


def _measure(folder: Path) -> list[Row]:
    pictures, one, many = folder / "pictures", folder / "one", folder / "many"
    draw_pictures(pictures, PICTURES)
    link_pictures(one, pictures, 1)
    link_pictures(many, pictures, MANY)
    cold, cold_daft = _run_bulk(folder, one), _run_arm("daft", folder, one)
    rounds = [(_run_bulk(folder, pictures), _run_arm("daft", folder, pictures)) for _ in range(ROUNDS)]
    others = {name: _run_arm(name, folder, pictures) for name in ("loop", "pool", "ray_data")}
    bulk, daft = [ours for ours, _ in rounds], [theirs for _, theirs in rounds]
    arms = {"bulk": bulk, "daft": daft, **{name: [other] for name, other in others.items()}}
    warm = [
        (ours.cpu_seconds - cold.cpu_seconds) / (theirs.cpu_seconds - cold_daft.cpu_seconds) for ours, theirs in rounds
    ]
    seconds, peak = median([each.seconds for each in bulk]), median([each.peak_mb for each in bulk])
    ceiling = others["loop"].seconds / (os.cpu_count() or 1)
    repeated = _repeated(folder, pictures)
    large = _run_bulk(folder, many)
    again = _run_bulk(folder, many, is_new=False)
    return [
        _ratio("seconds_over_daft", [ours.seconds / theirs.seconds for ours, theirs in rounds], "wall time"),
        _ratio("cpu_over_daft", [ours.cpu_seconds / theirs.cpu_seconds for ours, theirs in rounds], "CPU time"),
        _ratio("warm_cpu_over_daft", warm, "CPU time without the cold start, which a job of one picture measures"),
        _figure(
            "cold_start_s", cold.seconds, "s", "a job of one picture; reference: Daft", reference=cold_daft.seconds
        ),
        *(_cpu(name, measured) for name, measured in arms.items()),
        _figure("seconds_over_ray_data", seconds / others["ray_data"].seconds, "×", "wall time"),
        _figure("share_of_ceiling", ceiling / seconds, "×", "the ceiling is the loop's time divided by the cores"),
        repeated,
        _figure("rerun_20000_s", again.seconds, "s", "20,000 pictures, none changed", target=RERUN_SECONDS),
        _figure(
            "memory_20000_over_2000", large.peak_mb / peak, "×", f"peak {large.peak_mb:.0f} MB", target=MEMORY_RATIO
        ),
    ]


def _figure(
    name: str, value: float, unit: str, note: str, *, target: float | None = None, reference: float | None = None
) -> Row:
    compared = None if reference is None else median([reference])
    return Row(f"bulk.{name}", median([value]), unit, target, compared, note)


def _ratio(name: str, ratios: Sequence[float], what: str) -> Row:
    note = f"{what} of {PICTURES:,} pictures, 1 % broken; median of {ROUNDS} interleaved rounds"
    return Row(f"bulk.{name}", median(ratios), "×", OVER_DAFT, note=note)


def _cpu(name: str, arms: Sequence[Measurement]) -> Row:
    per_thousand = [each.cpu_seconds / PICTURES * 1000 for each in arms]
    wall = median([each.seconds for each in arms])
    note = f"per 1,000 pictures, start included; {wall:g} s for all, peak {max(each.peak_mb for each in arms):.0f} MB"
    return Row(f"bulk.{name}_cpu_s", median(per_thousand), "s", note=note)


def _repeated(folder: Path, pictures: Path) -> Row:
    """Kills a job at half and resumes it."""
    shutil.rmtree(folder / "bulk", ignore_errors=True)
    with subprocess.Popen(
        _command(folder, pictures), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        assert job.stderr
        ended = next(done for line in job.stderr if (done := int(line.split()[0].replace(",", ""))) >= PICTURES // 2)
        os.killpg(job.pid, signal.SIGKILL)
    written = sum(pq.ParquetFile(part).metadata.num_rows for part in (folder / "bulk").glob("part-*.parquet"))
    resumed = _run_bulk(folder, pictures, is_new=False)
    note = (
        f"had ended and were not written at kill -9 after {ended:,} of {PICTURES:,}; resumed in {resumed.seconds:.1f} s"
    )
    return Row("bulk.repeated_after_kill", ended - written, "items", note=note)


def _run_bulk(folder: Path, pictures: Path, *, is_new: bool = True) -> Measurement:
    if is_new:
        shutil.rmtree(folder / "bulk", ignore_errors=True)
    return measure(_command(folder, pictures))


def _command(folder: Path, pictures: Path) -> Sequence[str]:
    pipeline = {"format": "hugginggpt/pipeline/1", "name": "colours", "plan": PLAN}
    job = {"pipeline": pipeline, "experts": [str(EXPERT)], "sources": [str(pictures)], "to": f"{folder}/bulk/"}
    file = folder / "job.json"
    file.write_text(json.dumps(job), "utf-8")
    return [sys.executable, "-m", "experts.bulk", str(file)]


def _run_arm(name: str, folder: Path, pictures: Path) -> Measurement:
    out = folder / f"{name}-out"
    shutil.rmtree(out, ignore_errors=True)  # of an earlier round; a file is replaced
    program = f"tests.bench.bulk.arms.with_{name}"
    return measure([sys.executable, "-m", program, str(pictures), str(out)], {"DO_NOT_TRACK": "1"})
