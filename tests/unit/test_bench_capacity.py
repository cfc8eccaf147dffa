"""Capacity planning, checked against values calculated by hand."""

import pytest

from tests.bench import saturation
from tests.bench.capacity import EXAMPLES, PAGE, RATES, checked, experts, figures, service_rows

KNOWN = {
    "hops.gateway_ms": 6.0,
    "hops.planner_ms": 12.0,
    "hops.selector_ms": 3.0,
    "hops.orchestrator_ms": 9.0,
    "hops.responder_ms": 1.0,
    "hops.postgres_ms": 2.0,
    "hops.kept_kb": 5.0,
    "growth.wide_1000_ms_per_task": 1.5,
}


def test_processes_use_at_most_six_tenths_of_a_core() -> None:
    rows = {name: counts for name, *counts in service_rows(KNOWN, [1_000.0], 1)}
    assert rows["gateway, processes"] == [10]
    assert rows["planner, processes"] == [20]
    assert rows["orchestrator, processes"] == [15]


def test_services_have_two_replicas_and_ten_connections_per_database_client() -> None:
    rows = {name: counts for name, *counts in service_rows(KNOWN, [1.0], 1)}
    assert rows["gateway, processes"] == [2]
    assert rows["responder, processes"] == [2]
    assert rows["PostgreSQL: connections"] == [40]


def test_further_tasks_need_selector_and_orchestrator_only() -> None:
    rows = {name: counts for name, *counts in service_rows(KNOWN, [1_000.0], 3)}
    assert rows["planner, processes"] == [20]
    assert rows["selector, processes"] == [15]
    assert rows["orchestrator, processes"] == [20]


def test_database_load_and_growth_follow_the_rate() -> None:
    rows = {name: counts for name, *counts in service_rows(KNOWN, [1_000.0], 1)}
    assert rows["PostgreSQL: cores busy"] == ["2"]
    assert rows["PostgreSQL: growth, GB a day"] == ["430"]


def test_expert_cores_include_the_utilization_limit() -> None:
    assert list(experts({"mine": 0.3}, [10.0])) == [["mine", "0.3 s", 5]]


def test_readme_contains_all_needed_figures() -> None:
    known = figures(PAGE.read_text(encoding="utf-8"))
    assert list(service_rows(known, RATES, 1))
    work = {name: known[name] for name in EXAMPLES if name in known}
    assert "sign" in work
    assert len(work) >= 3
    assert min(work.values()) > 0


def test_seconds_of_an_item_count_all_cores_of_the_measurement() -> None:
    row = "| `host.text_base_share` | 0.97 | ≥ 0.95 | met |  | of 8 a second on 4 cores offline |\n"
    batch = "batch_x completed in 3 s: 6 items"
    assert figures(f"{row}{batch}")["text_base"] == pytest.approx(0.5)


def test_text_without_figures_is_an_error() -> None:
    with pytest.raises(ValueError, match="unpack"):
        figures("no table")


@pytest.mark.parametrize(("knee", "verdict"), [(50.0, "formula holds"), (40.0, "formula does not hold")])
def test_formula_is_compared_with_the_measured_knee(knee: float, verdict: str) -> None:
    found = {
        "load.knee_runs_per_s": knee,
        "capacity.formula_runs_per_s": 44.0,
        "capacity.busy_at_knee": 0.68,
        "capacity.predicted_runs_per_s": 55.0,
    }
    text = checked(found)
    assert verdict in text
    assert "has its knee at 55" in text


def test_missing_knee_is_stated() -> None:
    assert "not compared with a measured knee yet" in checked(KNOWN)


def test_saturation_list_agrees_with_the_table() -> None:
    few, many, slots, most = saturation.bullet_list(KNOWN).splitlines()
    assert "take 0.33 of a core" in few
    assert "430 GB a day, 13 TB in the 30 days" in many
    assert "which together is 250" in many
    assert "12 orchestrators at least; the table has 15" in slots
    assert "each of 500 selectors" in most


def test_transfers_are_listed_if_they_were_measured() -> None:
    speeds = {"bytes.upload_mb_per_s": 500.0, "bytes.download_mb_per_s": 1_500.0}
    assert "keep 4 gateways busy" in saturation.bullet_list(KNOWN | speeds).splitlines()[-1]
