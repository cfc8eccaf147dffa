"""The bulk section of `make bench`: counts of results, and the rows of a workload."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.bench.bulk.arms.work import COLOURS, THUMBNAILS, load_work
from tests.bench.bulk.comparison import ArmRuns, compare
from tests.bench.bulk.measure import Measurement
from tests.bench.bulk.results import Counts, count_results
from tests.bench.bulk.workloads import BY_NAME, WORKLOADS, Workload
from tests.bench.rows import Row

WORKLOAD = BY_NAME[COLOURS]


def arm(*seconds: float, cold: float = 1.0, errors: int = 0) -> ArmRuns:
    """Runs whose CPU time is twice their wall time."""
    runs = [Measurement(each, 2 * each, 100.0) for each in seconds]
    return ArmRuns(runs, Measurement(cold, 2 * cold, 50.0), Counts(WORKLOAD.count, errors))


def rows(bulk: ArmRuns, daft: ArmRuns, loop: ArmRuns, *, workload: Workload = WORKLOAD) -> dict[str, Row]:
    arms = {"bulk": bulk, "daft": daft, "loop": loop, "ray_data": arm(9.0)}
    return {row.id.removeprefix(f"bulk.{workload.name}_"): row for row in compare(workload, arms, 2)}


def test_ratio_is_the_median_of_rounds() -> None:
    found = rows(arm(4.0, 3.0, 9.0), arm(2.0, 2.0, 3.0), arm(5.0))
    assert found["seconds_over_daft"].value == 2.0


def test_ratios_to_daft_have_the_target_of_the_workload() -> None:
    found = rows(arm(4.0), arm(2.0), arm(5.0))
    targets = {row.target for name, row in found.items() if name.endswith("over_daft")}
    assert targets == {WORKLOAD.over_daft}


def test_warm_ratio_excludes_both_cold_starts() -> None:
    found = rows(arm(4.0, cold=1.0), arm(2.5, cold=0.5), arm(5.0))
    assert found["warm_seconds_over_daft"].value == 1.5
    assert found["warm_cpu_over_daft"].value == 1.5


def test_ceiling_is_the_rate_of_the_loop_on_all_cores() -> None:
    found = rows(arm(6.0, cold=1.0), arm(2.0), arm(9.0, cold=1.0))
    assert found["bulk_share_of_ceiling"].value == 0.8
    assert found["loop_share_of_ceiling"].value == 0.5


def test_cpu_time_is_that_of_a_thousand_files() -> None:
    found = rows(arm(6.0), arm(2.0), arm(9.0))
    assert found["bulk_cpu_s"].value == 6.0
    assert WORKLOAD.count == 2_000


def test_note_states_how_many_results_are_errors() -> None:
    found = rows(arm(6.0, errors=20), arm(2.0), arm(9.0))
    assert "2,000 results, 20 of them errors" in found["bulk_cpu_s"].note


def test_run_shorter_than_its_cold_start_is_a_gap() -> None:
    found = rows(arm(4.0), arm(1.0, cold=1.5), arm(5.0))
    assert found["warm_seconds_over_daft"].verdict == "not measured"
    assert found["seconds_over_daft"].verdict == "missed"


def write_lines(file: Path, errors: Sequence[str | None]) -> None:
    file.write_text("".join(json.dumps({"error": error}) + "\n" for error in errors))


def test_results_in_lines_are_counted(tmp_path: Path) -> None:
    write_lines(tmp_path / "out", [None, "broken", None])
    assert count_results(tmp_path / "out") == Counts(3, 1)


def test_results_of_a_batch_are_counted(tmp_path: Path) -> None:
    write_lines(tmp_path / "results.jsonl", [None, "broken"])
    assert count_results(tmp_path) == Counts(2, 1)


def test_results_in_tables_are_counted_without_incomplete_ones(tmp_path: Path) -> None:
    for name in ("part-1.parquet", "part-2.parquet"):
        pq.write_table(pa.table({"error": pa.array([None, {"code": "DECODE"}])}), tmp_path / name)
    (tmp_path / "part-3.parquet").write_bytes((tmp_path / "part-1.parquet").read_bytes()[:-20])
    assert count_results(tmp_path) == Counts(4, 2)


def test_missing_results_are_none(tmp_path: Path) -> None:
    assert count_results(tmp_path / "out") == Counts(0, 0)


@pytest.mark.parametrize("name", [COLOURS, THUMBNAILS])
def test_broken_picture_is_an_error_of_its_own(name: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (640, 480), "red").save(file, "JPEG")
    whole, broken = load_work(name)([file.getvalue(), file.getvalue()[:600]])
    assert whole["error"] is None
    assert broken["error"]
    assert broken["text"] is None


def test_names_of_workloads_are_unique() -> None:
    assert len(BY_NAME) == len(WORKLOADS)
