"""A figure, and where it stands."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["met", "missed", "not measured", "no target"]


@dataclass(frozen=True)
class Row:
    """One measured figure."""

    id: str
    """Dotted lower case, such as run.overhead_per_task_ms."""
    value: float | None
    """None says that it was not measured, and the note why."""
    unit: str
    target: float | None = None
    """The most it may be, or the least where at_least is set."""
    reference: float | None = None
    """Something comparable measured in the same run, in the same unit."""
    note: str = ""
    at_least: bool = False

    @property
    def verdict(self) -> Verdict:
        if self.value is None:
            return "not measured"
        if self.target is None:
            return "no target"
        met = self.value >= self.target if self.at_least else self.value <= self.target
        return "met" if met else "missed"


def gap(name: str, unit: str, target: float | None, why: str, *, at_least: bool = False) -> Row:
    """A figure that could not be measured here."""
    return Row(name, None, unit, target, note=why, at_least=at_least)


def median(values: Sequence[float], *, digits: int = 3) -> float:
    """Rounded to three significant digits: more would be noise, unless it is to be taken from something else."""
    return float(f"{statistics.median(values):.{digits}g}")


def quantile(values: Sequence[float], share: float) -> float:
    """The least value that so large a share of them does not exceed: exact, of all that were kept."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
