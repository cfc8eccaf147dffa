"""Benchmark reports as JSON and as tables of a page: both contain the same figures."""

from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.curves import Curve
from tests.bench.figures import LINK, PAGE, PICTURES, VERDICTS, parse_rows, render, updated
from tests.bench.report import Machine, Report, load_report, read, section, write
from tests.bench.rows import Row, gap

ROWS = [
    Row("one.quick_ms", 2.5, "ms", 5, 1.25, "a note | with a line"),
    Row("one.rate", 1_421, "/s", 1_500, at_least=True),
    Row("one.size_mb", 12, "MB"),
    gap("one.gpu_busy", "", 0.9, "no GPU", at_least=True),
]
CURVE = Curve("one.sizes", "Sizes", "tasks", "ms", {"chain": [(1, 2), (10, 20)]})
MACHINE: Machine = {"cores": 2, "cpu": "a processor", "memory_gb": 8, "python": "3.11.7", "system": "Linux x86_64"}
REPORT = Report(MACHINE, {"one": section("Describes one.", [*ROWS, CURVE])})
PICTURE_BYTES = 60_000


def test_report_reads_back_rows_and_curves(tmp_path: Path) -> None:
    write(REPORT, tmp_path / "out" / "bench.json")
    again = read(tmp_path / "out" / "bench.json")
    assert again.machine == MACHINE
    assert again.sections["one"].rows == ROWS
    assert again.sections["one"].curves[0].fits == CURVE.fits


def test_with_section_replaces_a_section_and_drops_unknown_ones() -> None:
    both = REPORT.with_section("two", section("Describes two.", []), ["two", "one"])
    assert list(both.sections) == ["two", "one"]
    assert list(both.with_section("two", section("", ROWS), ["two"]).sections) == ["two"]


def test_load_report_ignores_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(REPORT, tmp_path / "bench.json")
    assert not load_report(tmp_path / "bench.json").sections
    monkeypatch.setattr(report, "machine", lambda: MACHINE)
    assert list(load_report(tmp_path / "bench.json").sections) == ["one"]


def test_show_prints_rows_with_verdicts_and_fits(capsys: pytest.CaptureFixture[str]) -> None:
    report.show([*ROWS, CURVE])
    shown = capsys.readouterr().out
    assert [shown.count(word) for word in ("met", "missed", "not measured")] == [1, 1, 1]
    assert "x^1.000" in shown


def test_rendered_page_parses_back_to_its_rows() -> None:
    page = updated("before\n<!-- make figures -->\nold\n<!-- end -->\nafter\n", REPORT)
    assert page.startswith("before\n")
    assert page.endswith("<!-- end -->\nafter\n")
    assert [row for row, _ in parse_rows(page)] == ROWS
    assert f"{LINK}/one.sizes.svg" in render(REPORT)


def test_missing_contender_is_shown_as_a_gap() -> None:
    rows = [Row("makespan.llm_selects_chain_4_s", 1.724, "s"), Row("peers.jarvis_llm_selects_chain_4_s", 4.1, "s")]
    page = render(Report(MACHINE, {"makespan": section("", rows)}))
    assert "| chain of 4 | 1.72 | — | — | 4.10 |" in page


def test_page_verdicts_follow_from_the_values() -> None:
    rows = parse_rows(PAGE.read_text(encoding="utf-8"))
    assert len(rows) > 50
    assert [row.id for row, verdict in rows if verdict != VERDICTS[row.verdict]] == []


def test_page_figures_are_unique() -> None:
    names = [row.id for row, _ in parse_rows(PAGE.read_text(encoding="utf-8"))]
    assert len(names) == len(set(names))


def test_page_charts_exist_and_are_small() -> None:
    text = PAGE.read_text(encoding="utf-8")
    pictures = sorted(PICTURES.glob("*"))
    assert [picture.name for picture in pictures if f"{LINK}/{picture.name}" not in text] == []
    assert [picture.name for picture in pictures if picture.stat().st_size > PICTURE_BYTES] == []
    assert text.count(f"{LINK}/") == len(pictures)
