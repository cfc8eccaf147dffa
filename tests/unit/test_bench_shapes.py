"""Critical paths of the benchmark's graphs, checked against values calculated by hand."""

from dataclasses import replace

import pytest

from tests.bench.shapes import SHAPES, Script, parse_script

PACE = Script("single", 1, plan=0.3, select=0.3, expert=0.2, answer=0.3)


@pytest.mark.parametrize(
    ("shape", "size", "seconds", "tasks"),
    [("single", 1, 1.1, 1), ("chain", 4, 1.7, 4), ("wide", 8, 1.1, 1), ("diamond", 4, 1.5, 3), ("chain", 8, 2.5, 8)],
)
def test_critical_path_counts_one_selection(shape: str, size: int, seconds: float, tasks: int) -> None:
    length, on_it = replace(PACE, shape=shape, size=size).critical()
    assert length == pytest.approx(seconds)
    assert on_it == tasks


def test_critical_path_has_only_the_last_task_if_planning_is_slow() -> None:
    slow = Script("chain", 8, plan=0.1, gap=0.1, select=0.02, expert=0.05, answer=0.1)
    length, on_it = slow.critical()
    assert length == pytest.approx(0.8 + 0.02 + 0.05 + 0.1)
    assert on_it == 1


def test_critical_path_has_all_tasks_if_planning_is_fast() -> None:
    quick = Script("chain", 8, plan=0.1, gap=0.01, expert=0.05)
    length, on_it = quick.critical()
    assert length == pytest.approx(0.1 + 8 * 0.05)
    assert on_it == 8


@pytest.mark.parametrize("shape", SHAPES)
def test_script_is_restored_from_its_request_and_its_graph_is_acyclic(shape: str) -> None:
    written = Script(shape, 100, expert=0.05)
    assert parse_script(written.request) == written
    assert all(need < task_id for task_id, needs in written.graph.items() for need in needs)


def test_random_graph_is_reproducible() -> None:
    first, again = Script("random", 100, expert=0.05), Script("random", 100, expert=0.05)
    assert first.plan_message() == again.plan_message()
    assert len(first.plan_message().tasks) == 100


def test_unpinned_tasks_have_their_milliseconds_as_source() -> None:
    pinned, unpinned = Script("single", 1, expert=0.05), Script("single", 1, expert=0.05, pinned=False)
    assert [(task.pinned_model, task.source) for task in pinned.plan_message().tasks] == [("50", "")]
    assert [(task.pinned_model, task.source) for task in unpinned.plan_message().tasks] == [("", "50")]
