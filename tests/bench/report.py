"""Results of the benchmark by section: written as JSON, printed as tables."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.curves import Curve, Measured
from tests.bench.machine import machine
from tests.bench.rows import Row, Verdict

OUT = Path("out/bench.json")
WIDTH = 150
Machine = Mapping[str, str | int]
SHOWN: Mapping[Verdict, str] = {
    "met": "[green]met[/]",
    "missed": "[red]missed[/]",
    "not measured": "[yellow]not measured[/]",
    "no target": "",
}


@dataclass(frozen=True)
class Section:
    """Results of one section.

    Attributes:
        about: one sentence on what it measures.
        measured: time of the measurement, ISO 8601 in UTC.
    """

    about: str
    measured: str
    rows: Sequence[Row]
    curves: Sequence[Curve]


@dataclass(frozen=True)
class Report:
    """Results by section, all measured on one machine."""

    machine: Machine
    sections: Mapping[str, Section]

    def with_section(self, name: str, section: Section, order: Iterable[str]) -> "Report":
        """A report in which one section is replaced.

        Args:
            name: of the section.
            section: its results.
            order: names of all sections; others are dropped.
        """
        sections = {**self.sections, name: section}
        return Report(self.machine, {each: sections[each] for each in order if each in sections})


def section(about: str, measured: Sequence[Measured]) -> Section:
    """Results measured just now."""
    rows = [one for one in measured if isinstance(one, Row)]
    curves = [one for one in measured if isinstance(one, Curve)]
    return Section(about, datetime.now(UTC).isoformat(timespec="seconds"), rows, curves)


def load_report(path: Path) -> Report:
    """The report in a file; an empty one if it does not exist or was measured on another machine."""
    here = machine()
    earlier = read(path) if path.exists() else Report(here, {})
    return earlier if earlier.machine == here else Report(here, {})


def set_aside(path: Path) -> Path | None:
    """Renames a report of another machine, so that this one's results do not replace it.

    Returns:
        The new path, or None if the file does not exist or is of this machine.
    """
    if not path.exists() or read(path).machine == machine():
        return None
    return path.rename(path.with_stem(f"{path.stem}-other-machine"))


def read(path: Path) -> Report:
    """Reads a report that `write` has written."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return Report(data["machine"], {name: _from_json(each) for name, each in data["sections"].items()})


def _from_json(data: Mapping[str, Any]) -> Section:
    rows = [Row(**{key: row[key] for key in row if key != "verdict"}) for row in data["rows"]]
    curves = [Curve(**{key: curve[key] for key in curve if key != "fits"}) for curve in data["curves"]]
    return Section(data["about"], data["measured"], rows, curves)


def write(report: Report, path: Path) -> None:
    """Writes a report as JSON, with the verdicts of rows and the fits of curves."""
    data = {"machine": report.machine, "sections": {name: _to_json(each) for name, each in report.sections.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _to_json(section: Section) -> Mapping[str, object]:
    return {
        "about": section.about,
        "measured": section.measured,
        "rows": [{**asdict(row), "verdict": row.verdict} for row in section.rows],
        "curves": [
            {**asdict(curve), "fits": {name: asdict(fit) for name, fit in curve.fits.items()}}
            for curve in section.curves
        ],
    }


def show(measured: Sequence[Measured]) -> None:
    """Prints a table of rows, and one of curves if there are any."""
    console = Console(width=WIDTH)
    console.print(_figures([one for one in measured if isinstance(one, Row)]))
    if curves := [one for one in measured if isinstance(one, Curve)]:
        console.print(_fits(curves))


def _figures(rows: Sequence[Row]) -> Table:
    table = Table("figure", "value", "unit", "target", "verdict", "reference", "note")
    for row in rows:
        bound = "" if row.target is None else f"{'≥' if row.at_least else '≤'} {row.target:g}"
        value = "—" if row.value is None else f"{row.value:g}"
        table.add_row(row.id, value, row.unit, bound, SHOWN[row.verdict], _number(row.reference), row.note)
    return table


def _fits(curves: Sequence[Curve]) -> Table:
    table = Table("curve", "of", "points", "power law", "line", "x", "y")
    for curve in curves:
        for name, points in curve.series.items():
            found = curve.fits.get(name)
            power = f"{found.factor:.3g} · x^{found.exponent:.3f}" if found else ""
            line = f"{found.start:.3g} + {found.slope:.3g} · x" if found else ""
            table.add_row(curve.id, name, str(len(points)), power, line, curve.x, curve.y)
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
