"""`make figures`: README's section of figures, made from what `make bench` has measured."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.bench import charts
from tests.bench.report import OUT, Report, Section, read
from tests.bench.rows import Row, Verdict

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PICTURES = Path(".github/charts")
HEAD: Final = ("figure", "value", "target", "verdict", "beside it", "what it is")
VERDICTS: dict[Verdict, str] = {"met": "met", "missed": "**missed**", "not measured": "not measured", "no target": ""}
NOTHING = "—"
RACERS: Final = {
    "this": "makespan.",
    "plain asyncio, nothing kept": "peers.asyncio_",
    "LangGraph, nothing kept": "peers.langgraph_",
    "JARVIS' scheduling": "peers.jarvis_",
}
"""What their rows' names begin with."""

_PART = re.compile(r"(<!-- make figures -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
_RACED = re.compile(r"makespan\.llm_selects_(\w+)_s")
_PIPE = re.compile(r"(?<!\\)\|")


def rewritten(text: str, report: Report) -> str:
    """The page with these figures."""
    return _PART.sub(lambda found: f"{found[1]}{told(report)}{found[3]}", text)


def told(report: Report) -> str:
    """On what and when it was measured, how many targets are met, and each section's charts, its table folded up."""
    sections = (line for name in report.sections for line in _section(name, report))
    return "\n".join([_where(report), *_raced(report), *sections]) + "\n"


def _where(report: Report) -> str:
    on = report.machine
    days = sorted({section.measured[:10] for section in report.sections.values()})
    verdicts = [row.verdict for section in report.sections.values() for row in section.rows]
    counts = {verdict: verdicts.count(verdict) for verdict in VERDICTS}
    return (
        f"Measured {' to '.join(dict.fromkeys((days[0], days[-1])))} on {on['cores']} cores of {on['cpu']}, "
        f"{on['memory_gb']} GB, Python {on['python']}, {on['system']}. Targets met: {counts['met']}; "
        f"missed: {counts['missed']}. Figures without a target: {counts['no target']}; not measured, and why is told: "
        f"{counts['not measured']}."
    )


def _raced(report: Report) -> Iterator[str]:
    """The runs whose models an LLM chooses, beside the same by others; what is not there is a gap."""
    rows = {row.id: row for section in report.sections.values() for row in section.rows}
    shapes = [found[1] for name in rows if (found := _RACED.fullmatch(name))]
    if shapes:
        yield from ("", f"| seconds of a run, its models chosen by an LLM | {' | '.join(RACERS)} |")
        yield "|---" * (len(RACERS) + 1) + "|"
    for shape in shapes:
        raced = (rows.get(f"{who}llm_selects_{shape}_s") for who in RACERS.values())
        values = (NOTHING if row is None or row.value is None else f"{row.value:.2f}" for row in raced)
        yield f"| {shape.replace('_', ' of ')} | {' | '.join(values)} |"


def _section(name: str, report: Report) -> Iterator[str]:
    section = report.sections[name]
    yield from ("", f"<details><summary><code>{name}</code>: {section.about}{_counted(section)}</summary>", "")
    yield from _table(section)
    yield from ("", "</details>")
    if section.curves:
        yield ""
    for curve in section.curves:
        yield f"[![{curve.title}]({PICTURES}/{curve.id}.svg)]({PICTURES}/{curve.id}.png)"


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
    beside = "" if row.reference is None else _amount(row.reference, row.unit)
    value = NOTHING if row.value is None else _amount(row.value, row.unit)
    return f"`{row.id}`", value, bound, VERDICTS[row.verdict], beside, row.note.replace("|", "\\|")


def _amount(value: float, unit: str) -> str:
    return f"{value:,g} {unit}".strip()


def parsed(text: str) -> Sequence[tuple[Row, str]]:
    """The rows of a page, each with the verdict that stands there."""
    return [
        _row(line) for line in text.splitlines() if line.startswith("| `") and len(_PIPE.split(line)) == len(HEAD) + 2
    ]


def _row(line: str) -> tuple[Row, str]:
    name, value, target, verdict, beside, note = (cell.strip() for cell in _PIPE.split(line)[1:-1])
    sign, _, bound = target.partition(" ")
    figure, _, unit = value.partition(" ")
    amount = None if value == NOTHING else _number(figure)
    unit = unit or bound.partition(" ")[2]
    row = Row(name.strip("`"), amount, unit, _first(bound), _first(beside), note.replace("\\|", "|"), sign == "≥")
    return row, verdict


def _first(amount: str) -> float | None:
    return _number(amount.partition(" ")[0]) if amount else None


def _number(written: str) -> float:
    return float(written.replace(",", ""))


def main() -> None:
    if not OUT.exists():
        sys.exit(f"{OUT} is not there: make bench measures, and writes it")
    report = read(OUT)
    charts.draw([curve for section in report.sections.values() for curve in section.curves], ROOT / PICTURES)
    README.write_text(rewritten(README.read_text(encoding="utf-8"), report), encoding="utf-8")


if __name__ == "__main__":
    main()
