"""Reports of `make eval` and `make chaos` as rows of the benchmark."""

import json
from pathlib import Path

import pytest

from tests.bench import other_reports

EVAL = {"how": "five-fold", "taskbench": {"n": 2064, "node_f1": 86.4, "edge_f1": 55.7, "p50_ms": 9.2, "p95_ms": 19.9}}
CHAOS = [{"runs": 1_000, "complaints": []}, {"runs": 1_000, "complaints": ["one of them"]}]


async def test_missing_report_is_a_gap_that_names_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = await other_reports.rows()
    assert {row.verdict for row in rows} == {"not measured"}
    assert all(row.note.startswith("make ") for row in rows)


async def test_values_of_reports_are_compared_with_their_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other_reports.EVAL.parent.mkdir()
    other_reports.EVAL.write_text(json.dumps(EVAL))
    other_reports.CHAOS.write_text(json.dumps(CHAOS))
    rows = {row.id: row for row in await other_reports.rows()}
    assert rows["plan.taskbench_node_f1"].verdict == "missed"
    assert rows["plan.taskbench_edge_f1"].verdict == "met"
    assert rows["plan.taskbench_p95_ms"].verdict == "met"
    assert rows["run.chaos_wrong"].value == 1
    assert rows["run.chaos_wrong"].verdict == "missed"
