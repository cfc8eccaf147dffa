"""`make figures`: writes the figures and charts of this folder's README.md from out/bench.json."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.bench import charts
from tests.bench.report import OUT, Report, Section, read
from tests.bench.rows import Row, Verdict

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("README.md")
PICTURES = ROOT / ".github" / "charts"
LINK: Final = "../../.github/charts"
"""The folder of the charts, as the page links to it."""
HEAD: Final = ("figure", "value", "target", "verdict", "reference", "what it is")
VERDICTS: dict[Verdict, str] = {"met": "met", "missed": "**missed**", "not measured": "not measured", "no target": ""}
NOTHING = "—"
CONTENDERS: Final = {
    "this": "makespan.",
    "plain asyncio, nothing stored": "peers.asyncio_",
    "LangGraph, nothing stored": "peers.langgraph_",
    "JARVIS' scheduling": "peers.jarvis_",
}
"""Prefixes of row names, by column of the comparison table."""

_PART = re.compile(r"(<!-- make figures -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
_COMPARED = re.compile(r"makespan\.llm_selects_(\w+)_s")
_PIPE = re.compile(r"(?<!\\)\|")


def updated(text: str, report: Report) -> str:
    """The text of a page with its figures section replaced."""
    return _PART.sub(lambda found: f"{found[1]}{render(report)}{found[3]}", text)


def render(report: Report) -> str:
    """The figures section: machine, dates, counts of met targets, and the charts and folded table of each section."""
    sections = (line for name in report.sections for line in _section(name, report))
    return "\n".join([_summary(report), *_contender_table(report), *sections]) + "\n"


def _summary(report: Report) -> str:
    on = report.machine
    days = sorted({section.measured[:10] for section in report.sections.values()})
    verdicts = [row.verdict for section in report.sections.values() for row in section.rows]
    counts = {verdict: verdicts.count(verdict) for verdict in VERDICTS}
    return (
        f"Measured {' to '.join(dict.fromkeys((days[0], days[-1])))} on {on['cores']} cores of {on['cpu']}, "
        f"{on['memory_gb']} GB, Python {on['python']}, {on['system']}. Targets met: {counts['met']}; "
        f"missed: {counts['missed']}. Figures without a target: {counts['no target']}; not measured, for the reason "
        f"given: {counts['not measured']}."
    )


def _contender_table(report: Report) -> Iterator[str]:
    """Table of runs whose models an LLM selects, compared with other frameworks; `—` where one was not measured."""
    rows = {row.id: row for section in report.sections.values() for row in section.rows}
    shapes = [found[1] for name in rows if (found := _COMPARED.fullmatch(name))]
    if shapes:
        yield from ("", f"| seconds of a run, models selected by an LLM | {' | '.join(CONTENDERS)} |")
        yield "|---" * (len(CONTENDERS) + 1) + "|"
    for shape in shapes:
        contender_rows = (rows.get(f"{prefix}llm_selects_{shape}_s") for prefix in CONTENDERS.values())
        values = (NOTHING if row is None or row.value is None else f"{row.value:.2f}" for row in contender_rows)
        yield f"| {shape.replace('_', ' of ')} | {' | '.join(values)} |"


def _section(name: str, report: Report) -> Iterator[str]:
    section = report.sections[name]
    yield from ("", f"<details><summary><code>{name}</code>: {section.about}{_counted(section)}</summary>", "")
    yield from _table(section)
    yield from ("", "</details>")
    if section.curves:
        yield ""
    for curve in section.curves:
        yield f"[![{curve.title}]({LINK}/{curve.id}.svg)]({LINK}/{curve.id}.png)"


def _counted(section: Section) -> str:
    missed = [row.verdict for row in section.rows].count("missed")
    return f" <b>Missed: {missed}.</b>" if missed else ""


def _table(section: Section) -> Iterator[str]:
    if section.rows:
        yield f"| {' | '.join(HEAD)} |"
        yield "|---" * len(HEAD) + "|"
    for row in section.rows:
        yield f"| {' | '.join(_cells(row))} |"


def _cells(row: Row) -> Sequence[str]:
    bound = "" if row.target is None else f"{'≥' if row.at_least else '≤'} {_amount(row.target, row.unit)}"
    reference = "" if row.reference is None else _amount(row.reference, row.unit)
    value = NOTHING if row.value is None else _amount(row.value, row.unit)
    return f"`{row.id}`", value, bound, VERDICTS[row.verdict], reference, row.note.replace("|", "\\|")


def _amount(value: float, unit: str) -> str:
    return f"{value:,g} {unit}".strip()


def parse_rows(text: str) -> Sequence[tuple[Row, str]]:
    """The rows of a page's figures tables, each with the verdict written there."""
    return [
        _row(line) for line in text.splitlines() if line.startswith("| `") and len(_PIPE.split(line)) == len(HEAD) + 2
    ]


def _row(line: str) -> tuple[Row, str]:
    name, value, target, verdict, reference, note = (cell.strip() for cell in _PIPE.split(line)[1:-1])
    sign, _, bound = target.partition(" ")
    figure, _, unit = value.partition(" ")
    amount = None if value == NOTHING else _number(figure)
    unit = unit or bound.partition(" ")[2]
    row = Row(name.strip("`"), amount, unit, _first(bound), _first(reference), note.replace("\\|", "|"), sign == "≥")
    return row, verdict


def _first(amount: str) -> float | None:
    return _number(amount.partition(" ")[0]) if amount else None


def _number(written: str) -> float:
    return float(written.replace(",", ""))


def main() -> None:
    if not OUT.exists():
        sys.exit(f"{OUT} does not exist: run `make bench` first")
    report = read(OUT)
    charts.draw([curve for section in report.sections.values() for curve in section.curves], PICTURES)
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), report), encoding="utf-8")


if __name__ == "__main__":
    main()
