"""The demonstrations: each can be read, each is a plan that runs, and the right ones are shown."""

import json
from collections import Counter

import pytest

from services.planner.llm.demonstrations import FILE, Demonstration, Demonstrations, read
from services.planner.llm.json_stream import PlanReader
from services.planner.llm.repair import PlanRepairer
from services.planner.plan import Modality, Task
from services.planner.plan_check import complaints
from tests.support.plans import STANDARD, inputs

ALL = tuple(read(FILE.read_text(encoding="utf-8")))
SHIPPED = Demonstrations.shipped()


def drafted(shown: Demonstration) -> tuple[list[Task], PlanRepairer, PlanReader]:
    reader = PlanReader()
    drafting = PlanRepairer(STANDARD, {named.name: named.value for named in inputs(shown.files)})
    raws = reader.feed(json.dumps({"tasks": shown.tasks}, ensure_ascii=False))
    tasks = [task for raw in raws for task in drafting.add(raw)]
    return [*tasks, *drafting.close()], drafting, reader


@pytest.mark.parametrize("shown", ALL, ids=lambda shown: shown.request[:30])
def test_a_demonstration_is_a_plan_that_runs_as_it_is_written(shown: Demonstration) -> None:
    tasks, drafting, reader = drafted(shown)
    assert drafting.complaints == []
    assert reader.dropped == []
    assert [task.task for task in tasks] == [task["task"] for task in shown.tasks if "task" in task]
    assert len(tasks) + len(reader.notes) == len(shown.tasks)
    if tasks:
        assert complaints(tasks, STANDARD, {named.name: named.value for named in inputs(shown.files)}) == []


@pytest.mark.parametrize("shown", ALL, ids=lambda shown: shown.request[:30])
def test_a_demonstration_says_what_its_arguments_say(shown: Demonstration) -> None:
    for task in (task for task in shown.tasks if "task" in task):
        needed = [
            int(value.rpartition("-")[2]) for value in flat(task["args"]) if value.startswith("<") and "-" in value
        ]
        assert task["dep"] == (sorted(set(needed)) or [-1])
        files = {value.strip("<>") for value in flat(task["args"]) if value.startswith("<file")}
        assert files <= {f"file{number}" for number in range(1, len(shown.files) + 1)}


def flat(arguments: dict[str, object]) -> list[str]:
    listed = [value if isinstance(value, list) else [value] for value in arguments.values()]
    return [value for values in listed for value in values if isinstance(value, str)]


def test_the_demonstrations_cover_every_task_every_kind_of_input_and_every_remark() -> None:
    assert len(ALL) >= 60
    assert {name for shown in ALL for name in shown.names} == STANDARD.keys()
    taken = {port.modality for shown in ALL for name in shown.names for port in STANDARD[name].inputs}
    assert taken >= {Modality.TEXT, Modality.IMAGE, Modality.AUDIO, Modality.VIDEO, Modality.TABLE}
    remarks = Counter(task["note"] for shown in ALL for task in shown.tasks if "note" in task)
    assert min(remarks[kind] for kind in ("unmapped", "clarify", "chat")) >= 3
    assert len({shown.request for shown in ALL}) == len(ALL)


def test_demonstrations_like_the_request_are_shown_whatever_its_language() -> None:
    assert SHIPPED.most_similar("Please read this flyer aloud", STANDARD)[0].request == "Read the poster aloud"
    assert SHIPPED.most_similar("Fasse den Brief zusammen", STANDARD)[0].request.startswith("Fasse den Text zusammen")
    assert SHIPPED.most_similar("把这段录音转成文字", STANDARD)[0].request.startswith("把这段录音转成文字")


def test_a_demonstration_never_shows_a_task_that_nobody_offers() -> None:
    offered = {name: STANDARD[name] for name in ("image-to-text", "summarization")}
    shown = SHIPPED.most_similar("Read the poster aloud", offered, count=32)
    assert shown
    assert all(one.names <= offered.keys() for one in shown)


def test_with_variety_no_kind_of_task_is_shown_again_and_again() -> None:
    words = "What does this picture show?"
    alike, diversify = (SHIPPED.most_similar(words, STANDARD, count=8, variety=variety) for variety in (0.0, 0.9))
    assert alike[0] == diversify[0]
    assert repeated(diversify) < repeated(alike)


def repeated(shown: list[Demonstration]) -> int:
    """How often a kind of task or remark is shown again."""
    return sum(len(one.kinds) for one in shown) - len({kind for one in shown for kind in one.kinds})


@pytest.mark.parametrize("count", [0, 1, 4, 12])
def test_as_many_demonstrations_are_shown_as_are_wanted(count: int) -> None:
    assert len(SHIPPED.most_similar("Describe the photo", STANDARD, count=count)) == count
