"""What the benchmark holds runs against: the longest way through a graph, by hand."""

from dataclasses import replace

import pytest

from tests.bench.shapes import SHAPES, Script, script

PACE = Script("single", 1, plan=0.3, select=0.3, expert=0.2, answer=0.3)


@pytest.mark.parametrize(
    ("shape", "size", "seconds", "tasks"),
    [("single", 1, 1.1, 1), ("chain", 4, 1.7, 4), ("wide", 8, 1.1, 1), ("diamond", 4, 1.5, 3), ("chain", 8, 2.5, 8)],
)
def test_the_critical_path_has_every_selection_made_once_its_task_is_planned(
    shape: str, size: int, seconds: float, tasks: int
) -> None:
    length, on_it = replace(PACE, shape=shape, size=size).critical()
    assert length == pytest.approx(seconds)
    assert on_it == tasks


def test_a_plan_slower_than_its_tasks_leaves_only_the_last_task_on_the_critical_path() -> None:
    slow = Script("chain", 8, plan=0.1, gap=0.1, select=0.02, expert=0.05, answer=0.1)
    length, on_it = slow.critical()
    assert length == pytest.approx(0.8 + 0.02 + 0.05 + 0.1)
    assert on_it == 1


def test_a_task_quicker_planned_than_run_waits_for_the_one_before() -> None:
    quick = Script("chain", 8, plan=0.1, gap=0.01, expert=0.05)
    length, on_it = quick.critical()
    assert length == pytest.approx(0.1 + 8 * 0.05)
    assert on_it == 8


@pytest.mark.parametrize("shape", SHAPES)
def test_a_script_is_known_by_its_words_and_its_graph_has_no_cycle(shape: str) -> None:
    written = Script(shape, 100, expert=0.05)
    assert script(written.words) == written
    assert all(need < task_id for task_id, needs in written.graph.items() for need in needs)


def test_the_random_graph_is_the_same_every_time() -> None:
    first, again = Script("random", 100, expert=0.05), Script("random", 100, expert=0.05)
    assert first.supplied() == again.supplied()
    assert len(first.supplied().tasks) == 100


def test_whoever_is_not_told_the_model_finds_its_pace_in_the_words_of_the_task() -> None:
    pinned, asked = Script("single", 1, expert=0.05), Script("single", 1, expert=0.05, pinned=False)
    assert [(task.pinned_model, task.source) for task in pinned.supplied().tasks] == [("50", "")]
    assert [(task.pinned_model, task.source) for task in asked.supplied().tasks] == [("", "50")]
