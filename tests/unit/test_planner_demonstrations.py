"""The demonstrations of the planning prompt, and their selection."""

import json
from collections import Counter

import pytest

from services.planner.llm.demonstrations import FILE, Demonstration, Demonstrations, read
from services.planner.llm.json_stream import PlanReader
from services.planner.llm.repair import PlanRepairer
from services.planner.plan import Task
from services.planner.plan_check import find_faults
from services.planner.task_spec import Modality
from tests.support.plans import STANDARD, inputs

ALL = tuple(read(FILE.read_text(encoding="utf-8")))
SHIPPED = Demonstrations.shipped()


def repair(demonstration: Demonstration) -> tuple[list[Task], PlanRepairer, PlanReader]:
    reader = PlanReader()
    repairer = PlanRepairer(STANDARD, {named.name: named.value for named in inputs(demonstration.files)})
    raws = reader.feed(json.dumps({"tasks": demonstration.tasks}, ensure_ascii=False))
    tasks = [task for raw in raws for task in repairer.add(raw)]
    return [*tasks, *repairer.close()], repairer, reader


@pytest.mark.parametrize("demonstration", ALL, ids=lambda demonstration: demonstration.request[:30])
def test_entryis_a_valid_plan_without_repairs(demonstration: Demonstration) -> None:
    tasks, repairer, reader = repair(demonstration)
    assert repairer.faults == []
    assert reader.dropped == []
    assert [task.task for task in tasks] == [task["task"] for task in demonstration.tasks if "task" in task]
    assert len(tasks) + len(reader.notes) == len(demonstration.tasks)
    if tasks:
        assert find_faults(tasks, STANDARD, {named.name: named.value for named in inputs(demonstration.files)}) == []


@pytest.mark.parametrize("demonstration", ALL, ids=lambda demonstration: demonstration.request[:30])
def test_dependencies_of_a_entrymatch_its_arguments(demonstration: Demonstration) -> None:
    for task in (task for task in demonstration.tasks if "task" in task):
        dependencies = [
            int(value.rpartition("-")[2]) for value in flat(task["args"]) if value.startswith("<") and "-" in value
        ]
        assert task["dep"] == (sorted(set(dependencies)) or [-1])
        files = {value.strip("<>") for value in flat(task["args"]) if value.startswith("<file")}
        assert files <= {f"file{number}" for number in range(1, len(demonstration.files) + 1)}


def flat(arguments: dict[str, object]) -> list[str]:
    listed = [value if isinstance(value, list) else [value] for value in arguments.values()]
    return [value for values in listed for value in values if isinstance(value, str)]


def test_demonstrations_cover_every_task_input_modality_and_note() -> None:
    assert len(ALL) >= 60
    assert {name for demonstration in ALL for name in demonstration.names} == STANDARD.keys()
    input_modalities = {
        port.modality for demonstration in ALL for name in demonstration.names for port in STANDARD[name].inputs
    }
    assert input_modalities >= {Modality.TEXT, Modality.IMAGE, Modality.AUDIO, Modality.VIDEO, Modality.TABLE}
    notes = Counter(task["note"] for demonstration in ALL for task in demonstration.tasks if "note" in task)
    assert min(notes[kind] for kind in ("unmapped", "clarify", "chat")) >= 3
    assert len({demonstration.request for demonstration in ALL}) == len(ALL)


def test_similar_demonstrations_are_selected_in_every_language() -> None:
    assert SHIPPED.most_similar("Please read this flyer aloud", STANDARD)[0].request == "Read the poster aloud"
    assert SHIPPED.most_similar("Fasse den Brief zusammen", STANDARD)[0].request.startswith("Fasse den Text zusammen")
    assert SHIPPED.most_similar("把这段录音转成文字", STANDARD)[0].request.startswith("把这段录音转成文字")


def test_selected_demonstrations_contain_only_offered_tasks() -> None:
    offered = {name: STANDARD[name] for name in ("image-to-text", "summarization")}
    demonstration = SHIPPED.most_similar("Read the poster aloud", offered, count=32)
    assert demonstration
    assert all(entry.names <= offered.keys() for entry in demonstration)


def test_variety_reduces_repeated_task_kinds() -> None:
    text = "What does this picture show?"
    most_similar_only, diversify = (
        SHIPPED.most_similar(text, STANDARD, count=8, variety=variety) for variety in (0.0, 0.9)
    )
    assert most_similar_only[0] == diversify[0]
    assert repetitions(diversify) < repetitions(most_similar_only)


def repetitions(demonstration: list[Demonstration]) -> int:
    """Number of repeated kinds of tasks and notes."""
    return sum(len(entry.kinds) for entry in demonstration) - len(
        {kind for entry in demonstration for kind in entry.kinds}
    )


@pytest.mark.parametrize("count", [0, 1, 4, 12])
def test_requested_number_of_demonstrations_is_selected(count: int) -> None:
    assert len(SHIPPED.most_similar("Describe the photo", STANDARD, count=count)) == count
