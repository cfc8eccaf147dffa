"""All that was measured: shown as tables, and kept as JSON, section by section."""

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
    """What one section has measured."""

    about: str
    """A sentence."""
    measured: str
    """When, as ISO 8601 in UTC."""
    rows: Sequence[Row]
    curves: Sequence[Curve]


@dataclass(frozen=True)
class Report:
    """Sections by name, all of one machine."""

    machine: Machine
    sections: Mapping[str, Section]

    def having(self, name: str, section: Section, order: Iterable[str]) -> "Report":
        """With this section in place of the one of that name, and without those that are in no order any more."""
        sections = {**self.sections, name: section}
        return Report(self.machine, {each: sections[each] for each in order if each in sections})


def section(about: str, measured: Sequence[Measured]) -> Section:
    """What has just been measured."""
    rows = [one for one in measured if isinstance(one, Row)]
    curves = [one for one in measured if isinstance(one, Curve)]
    return Section(about, datetime.now(UTC).isoformat(timespec="seconds"), rows, curves)


def found(path: Path) -> Report:
    """The report there, if it is of this machine; a report of nothing otherwise: figures of two are not compared."""
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
    """A report that was written."""
    told = json.loads(path.read_text(encoding="utf-8"))
    return Report(told["machine"], {name: _section(one) for name, one in told["sections"].items()})


def _section(told: Mapping[str, Any]) -> Section:
    rows = [Row(**{key: row[key] for key in row if key != "verdict"}) for row in told["rows"]]
    curves = [Curve(**{key: curve[key] for key in curve if key != "fits"}) for curve in told["curves"]]
    return Section(told["about"], told["measured"], rows, curves)


def write(report: Report, path: Path) -> None:
    """As JSON, with verdicts and fits beside what they follow from."""
    told = {"machine": report.machine, "sections": {name: _told(one) for name, one in report.sections.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _told(one: Section) -> Mapping[str, object]:
    return {
        "about": one.about,
        "measured": one.measured,
        "rows": [{**asdict(row), "verdict": row.verdict} for row in one.rows],
        "curves": [
            {**asdict(curve), "fits": {name: asdict(fit) for name, fit in curve.fits.items()}} for curve in one.curves
        ],
    }


def show(measured: Sequence[Measured]) -> None:
    """Prints a table of figures, and one of curves if there are any."""
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
