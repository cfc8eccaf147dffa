"""The arithmetic of capacity, by hand."""

import pytest

from tests.bench import saturation
from tests.bench.capacity import RATES, README, checked, experts, figures, house

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


def test_processes_are_so_many_that_each_uses_six_tenths_of_a_core() -> None:
    rows = {name: counts for name, *counts in house(KNOWN, [1_000.0], 1)}
    assert rows["gateway, processes"] == [10]
    assert rows["planner, processes"] == [20]
    assert rows["orchestrator, processes"] == [15]


def test_there_are_two_at_least_and_ten_connections_of_each_that_keeps_something() -> None:
    rows = {name: counts for name, *counts in house(KNOWN, [1.0], 1)}
    assert rows["gateway, processes"] == rows["responder, processes"] == [2]
    assert rows["PostgreSQL: connections"] == [40]


def test_further_tasks_cost_choices_and_work_of_the_orchestrator_and_no_planning() -> None:
    rows = {name: counts for name, *counts in house(KNOWN, [1_000.0], 3)}
    assert rows["planner, processes"] == [20]
    assert rows["selector, processes"] == [15]
    assert rows["orchestrator, processes"] == [20]


def test_the_database_is_busy_and_grows_with_the_rate() -> None:
    rows = {name: counts for name, *counts in house(KNOWN, [1_000.0], 1)}
    assert rows["PostgreSQL: cores busy"] == ["2"]
    assert rows["PostgreSQL: growth, GB a day"] == ["430"]


def test_experts_need_what_their_items_take_and_some_air() -> None:
    assert list(experts({"mine": 0.3}, [10.0])) == [["mine", "0.3 s", 5]]


def test_readme_has_every_figure_that_is_asked_of_it() -> None:
    known = figures(README.read_text(encoding="utf-8"))
    assert list(house(known, RATES, 1))
    assert min(known[name] for name in ("bert", "vit", "sign")) > 0


def test_a_readme_without_the_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="unpack"):
        figures("no table")


@pytest.mark.parametrize(("knee", "verdict"), [(50.0, "formula holds"), (40.0, "formula does not hold")])
def test_the_page_says_what_the_knee_made_of_the_formula(knee: float, verdict: str) -> None:
    found = {
        "load.knee_runs_per_s": knee,
        "capacity.formula_runs_per_s": 44.0,
        "capacity.busy_at_knee": 0.68,
        "capacity.predicted_runs_per_s": 55.0,
    }
    text = checked(found)
    assert verdict in text
    assert "has it at 55" in text


def test_the_page_says_where_no_knee_was_measured() -> None:
    assert "not held against a knee yet" in checked(KNOWN)


def test_each_rate_has_what_its_column_of_the_table_has() -> None:
    few, many, places, most = saturation.told(KNOWN).splitlines()
    assert "take 0.33 of a core" in few
    assert "430 GB a day, 13 TB in the 30 days" in many
    assert "which together is 250" in many
    assert "12 orchestrators at least; the table has 15" in places
    assert "each of 500 selectors" in most


def test_bytes_are_told_of_where_they_were_measured() -> None:
    speeds = {"bytes.upload_mb_per_s": 500.0, "bytes.download_mb_per_s": 1_500.0}
    assert "keep 4 gateways busy" in saturation.told(KNOWN | speeds).splitlines()[-1]
