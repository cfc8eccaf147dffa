"""`make bench SECTION=...`: selection of sections, and treatment of results of other sections and machines."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench.curves import Measured
from tests.bench.machine import machine
from tests.bench.report import Report, read, section, write
from tests.bench.rows import Row


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that results are written to."""
    path = tmp_path / "bench.json"
    monkeypatch.setattr(bench, "OUT", path)
    monkeypatch.setattr(bench, "CHARTS", tmp_path / "charts")
    return path


def _measures(name: str, value: float) -> Callable[[], Awaitable[Sequence[Measured]]]:
    async def rows() -> Sequence[Measured]:
        return [Row(name, value, "ms")]

    return rows


@pytest.mark.parametrize("arguments", [["hops,host"], ["hops", "host"], ["hops, host"], ["hops", "host,hops"]])
def test_sections_are_separated_by_commas_or_spaces(arguments: Sequence[str]) -> None:
    assert bench.requested(arguments) == ["hops", "host"]


def test_all_sections_are_measured_if_none_is_named() -> None:
    assert bench.requested([]) == list(bench.SECTIONS)


def test_unknown_section_exits_with_status_2_before_anything_is_measured(out: Path) -> None:
    assert bench.run(["hops,nope"]) == 2
    assert not out.exists()


def test_unknown_section_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    bench.run(["hops,nope"])
    assert "no such section: nope." in capsys.readouterr().err


@pytest.mark.parametrize("name", bench.SECTIONS)
def test_unknown_section_lists_each_section_with_what_it_measures(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.run(["nope"])
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.split()[:1] == [name]]
    assert len(line.split()) > 3


def test_results_of_sections_that_are_not_measured_stay_in_the_file(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: section("", [Row(f"{name}.old_ms", 1, "ms")]) for name in ("hops", "host")}
    write(Report(machine(), before), out)
    monkeypatch.setitem(bench.SECTIONS, "hops", _measures("hops.new_ms", 2))
    bench.run(["hops"])
    after = {name: [row.id for row in each.rows] for name, each in read(out).sections.items()}
    assert after == {"hops": ["hops.new_ms"], "host": ["host.old_ms"]}


def test_results_of_another_machine_are_renamed_and_reported(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(Report({**machine(), "cores": 1_000}, {"host": section("", [])}), out)
    monkeypatch.setitem(bench.SECTIONS, "hops", _measures("hops.new_ms", 2))
    bench.run(["hops"])
    saved = out.with_name("bench-other-machine.json")
    assert list(read(saved).sections) == ["host"]
    assert list(read(out).sections) == ["hops"]
    assert f"is now {saved}" in capsys.readouterr().err
