"""Rows of a workload, from the measurements of the programs that have done it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from tests.bench.bulk.measure import Measurement
from tests.bench.bulk.results import Counts
from tests.bench.bulk.workloads import BULK, DAFT, LOOP, RAY_DATA, Workload
from tests.bench.rows import Row, gap, median

THOUSAND = 1_000
DIGITS = 6
WHY = "the files took no longer than the cold start"


@dataclass(frozen=True)
class ArmRuns:
    """What one program did.

    Attributes:
        runs: on all files.
        cold: on a few files, which is mostly the start of its processes and the load of the models.
        counts: of its results.
    """

    runs: Sequence[Measurement]
    cold: Measurement
    counts: Counts

    @property
    def warm_runs(self) -> Sequence[Measurement]:
        """The runs without the cold start."""
        cold = self.cold
        return [
            replace(run, seconds=run.seconds - cold.seconds, cpu_seconds=run.cpu_seconds - cold.cpu_seconds)
            for run in self.runs
        ]

    @property
    def seconds(self) -> float:
        return median([run.seconds for run in self.runs], digits=DIGITS)

    @property
    def warm_seconds(self) -> float:
        return median([run.seconds for run in self.warm_runs], digits=DIGITS)

    @property
    def cpu_seconds(self) -> float:
        return median([run.cpu_seconds for run in self.runs], digits=DIGITS)

    @property
    def peak_mb(self) -> float:
        return max(run.peak_mb for run in self.runs)


def compare(workload: Workload, arms: Mapping[str, ArmRuns], cores: int) -> list[Row]:
    """The rows of a workload.

    Args:
        workload: what was done.
        arms: runs by name of the program; those of bulk and of Daft are rounds, which alternated.
        cores: on which each of them ran.
    """
    prefix = f"bulk.{workload.name}_"
    return [
        *_over_daft(prefix, workload, arms[BULK], arms[DAFT]),
        *_over_ray_data(prefix, arms),
        *(row for name in arms for row in _arm_rows(f"{prefix}{name}_", workload.count, arms[name], arms[LOOP], cores)),
    ]


def _over_daft(prefix: str, workload: Workload, bulk: ArmRuns, daft: ArmRuns) -> Iterator[Row]:
    about = f"{workload.count:,} {workload.about}; median of {len(bulk.runs)} interleaved rounds"
    used: Callable[[Measurement], float]
    for name, what, used in (
        ("seconds", "wall time", attrgetter("seconds")),
        ("cpu", "CPU time", attrgetter("cpu_seconds")),
    ):
        for kind, note, ours, theirs in (
            ("", f"{what} of {about}", bulk.runs, daft.runs),
            (
                "warm_",
                f"{what} without the cold start, which a job of a few files measures",
                bulk.warm_runs,
                daft.warm_runs,
            ),
        ):
            ratios = [_ratio(used(one), used(other)) for one, other in zip(ours, theirs, strict=True)]
            yield _row(f"{prefix}{kind}{name}_over_daft", ratios, "×", note, workload.over_daft)


def _over_ray_data(prefix: str, arms: Mapping[str, ArmRuns]) -> Iterator[Row]:
    bulk, other = arms[BULK], arms[RAY_DATA]
    yield _row(f"{prefix}seconds_over_ray_data", [_ratio(bulk.seconds, other.seconds)], "×", "wall time")
    warm = _ratio(bulk.warm_seconds, other.warm_seconds)
    yield _row(f"{prefix}warm_seconds_over_ray_data", [warm], "×", "wall time without the cold start")


def _arm_rows(prefix: str, count: int, arm: ArmRuns, loop: ArmRuns, cores: int) -> Iterator[Row]:
    share = _ratio(loop.warm_seconds / cores, arm.warm_seconds)
    note = f"of {cores} times the loop's rate; {arm.seconds:.3g} s, {arm.cold.seconds:.3g} s of them cold start"
    yield _row(f"{prefix}share_of_ceiling", [share], "", note)
    results = f"{arm.counts.rows:,} results, {arm.counts.errors:,} of them errors"
    note = f"CPU time of 1,000 files, a share of the cold start's {arm.cold.cpu_seconds:.3g} s included; {results}"
    yield _row(f"{prefix}cpu_s", [arm.cpu_seconds / count * THOUSAND], "s", note)
    yield _row(f"{prefix}peak_mb", [arm.peak_mb], "MB", "of all its processes")


def _ratio(ours: float, theirs: float) -> float | None:
    """None if one of them is not positive: noise of the cold start."""
    return ours / theirs if ours > 0 and theirs > 0 else None


def _row(name: str, values: Sequence[float | None], unit: str, note: str, target: float | None = None) -> Row:
    """The row of the median of the values that exist; a gap without any."""
    known = [value for value in values if value is not None]
    return Row(name, median(known), unit, target, note=note) if known else gap(name, unit, target, WHY)
