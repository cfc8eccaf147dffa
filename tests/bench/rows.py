"""A figure, and how it is shown and written."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


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
    def ok(self) -> bool | None:
        """Whether the target is met; None without one, or where nothing was measured."""
        if self.target is None or self.value is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def gap(name: str, unit: str, target: float | None, why: str, *, at_least: bool = False) -> Row:
    """A figure that could not be measured here."""
    return Row(name, None, unit, target, note=f"not measured: {why}", at_least=at_least)


def median(values: Sequence[float], *, digits: int = 3) -> float:
    """Rounded to three significant digits: more would be noise, unless it is to be taken from something else."""
    return float(f"{statistics.median(values):.{digits}g}")


def show(rows: Sequence[Row]) -> None:
    """Prints the table."""
    table = Table("figure", "value", "unit", "target", "ok", "reference", "note")
    for row in rows:
        bound = "" if row.target is None else f"{'≥' if row.at_least else '≤'} {row.target:g}"
        verdict = {True: "yes", False: "no", None: ""}[row.ok]
        reference = "" if row.reference is None else f"{row.reference:g}"
        value = "—" if row.value is None else f"{row.value:g}"
        table.add_row(row.id, value, row.unit, bound, verdict, reference, row.note)
    Console(width=150).print(table)


def write(rows: Sequence[Row], path: Path) -> None:
    """Writes the rows as a JSON list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = ("id", "value", "unit", "target", "ok", "reference", "note")
    entries = [{key: {**asdict(row), "ok": row.ok}[key] for key in fields} for row in rows]
    path.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
