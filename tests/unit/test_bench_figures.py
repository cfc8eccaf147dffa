"""What is measured, as JSON and in README, says the same."""

from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.curves import Curve
from tests.bench.figures import PICTURES, README, ROOT, VERDICTS, parsed, rewritten, told
from tests.bench.report import Machine, Report, found, read, section, write
from tests.bench.rows import Row, gap

ROWS = [
    Row("one.quick_ms", 2.5, "ms", 5, 1.25, "a note | with a line"),
    Row("one.rate", 1_421, "/s", 1_500, at_least=True),
    Row("one.told_mb", 12, "MB"),
    gap("one.gpu_busy", "", 0.9, "no GPU", at_least=True),
]
CURVE = Curve("one.sizes", "Sizes", "tasks", "ms", {"chain": [(1, 2), (10, 20)]})
MACHINE: Machine = {"cores": 2, "cpu": "a processor", "memory_gb": 8, "python": "3.11.7", "system": "Linux x86_64"}
REPORT = Report(MACHINE, {"one": section("What one is.", [*ROWS, CURVE])})
PICTURE_BYTES = 60_000


def test_rows_and_curves_are_read_as_they_were_written(tmp_path: Path) -> None:
    write(REPORT, tmp_path / "out" / "bench.json")
    again = read(tmp_path / "out" / "bench.json")
    assert again.machine == MACHINE
    assert again.sections["one"].rows == ROWS
    assert again.sections["one"].curves[0].fits == CURVE.fits


def test_a_section_takes_the_place_of_the_one_before_it_and_one_that_is_no_more_goes() -> None:
    both = REPORT.having("two", section("What two is.", []), ["two", "one"])
    assert list(both.sections) == ["two", "one"]
    assert list(both.having("two", section("", ROWS), ["two"]).sections) == ["two"]


def test_figures_of_another_machine_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(REPORT, tmp_path / "bench.json")
    assert not found(tmp_path / "bench.json").sections
    monkeypatch.setattr(report, "machine", lambda: MACHINE)
    assert list(found(tmp_path / "bench.json").sections) == ["one"]


def test_rows_are_shown_with_target_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    report.show([*ROWS, CURVE])
    shown = capsys.readouterr().out
    assert [shown.count(word) for word in ("met", "missed", "not measured")] == [1, 1, 1]
    assert "x^1.000" in shown


def test_a_page_says_what_was_measured_and_can_be_read_back() -> None:
    page = rewritten("before\n<!-- make figures -->\nold\n<!-- end -->\nafter\n", REPORT)
    assert page.startswith("before\n")
    assert page.endswith("<!-- end -->\nafter\n")
    assert [row for row, _ in parsed(page)] == ROWS
    assert f"{PICTURES}/one.sizes.svg" in told(REPORT)


def test_a_peer_that_is_absent_leaves_a_gap_beside_the_others() -> None:
    raced = [Row("makespan.llm_selects_chain_4_s", 1.724, "s"), Row("peers.jarvis_llm_selects_chain_4_s", 4.1, "s")]
    page = told(Report(MACHINE, {"makespan": section("", raced)}))
    assert "| chain of 4 | 1.72 | — | — | 4.10 |" in page


def test_every_verdict_in_readme_follows_from_its_figures() -> None:
    rows = parsed(README.read_text(encoding="utf-8"))
    assert len(rows) > 50
    assert [row.id for row, verdict in rows if verdict != VERDICTS[row.verdict]] == []


def test_no_figure_is_in_readme_twice() -> None:
    names = [row.id for row, _ in parsed(README.read_text(encoding="utf-8"))]
    assert len(names) == len(set(names))


def test_the_pictures_of_readme_are_there_and_small_and_no_others() -> None:
    told = README.read_text(encoding="utf-8")
    pictures = sorted((ROOT / PICTURES).glob("*")) if (ROOT / PICTURES).exists() else []
    assert [picture.name for picture in pictures if f"{PICTURES}/{picture.name}" not in told] == []
    assert [picture.name for picture in pictures if picture.stat().st_size > PICTURE_BYTES] == []
    assert told.count(f"{PICTURES}/") == len(pictures)
