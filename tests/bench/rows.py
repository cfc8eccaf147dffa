"""Measured figures with their targets, and statistics of samples."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["met", "missed", "not measured", "no target"]


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Attributes:
        id: dotted lower case, such as run.overhead_per_task_ms.
        value: None if it was not measured; the note then gives the reason.
        target: upper bound, or lower bound if at_least is set.
        reference: a comparable value measured in the same run, in the same unit.
    """

    id: str
    value: float | None
    unit: str
    target: float | None = None
    reference: float | None = None
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
    """A row for a figure that could not be measured; why is its note."""
    return Row(name, None, unit, target, note=why, at_least=at_least)


def median(values: Sequence[float], *, digits: int = 3) -> float:
    """The median, rounded to three significant digits, since more are noise; use more to subtract from it."""
    return float(f"{statistics.median(values):.{digits}g}")


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share of them does not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
