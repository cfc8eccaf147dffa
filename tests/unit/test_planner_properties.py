"""Whatever a model writes, what leaves the planner is a valid plan that grows and is never changed."""

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner.llm.json_stream import PlanReader, RawTask
from services.planner.llm.repair import PlanRepairer
from services.planner.plan import Input, Reference, Task, Value
from services.planner.plan_check import complaints
from tests.support.plans import STANDARD, file

pytestmark = pytest.mark.slow

INPUTS: dict[str, Value] = {"file1": file("sign.png"), "file2": file("talk.wav"), "file3": file("notes.txt")}
PRIOR = (
    Task(3, "image-to-text", {"image": Input("file1")}),
    Task(4, "text-to-speech", {"text": Reference(3, "text")}),
)

bounded = settings(max_examples=150, deadline=None, derandomize=True, database=None)

# ---------------------------------------------------------------- plans, right and wrong

_ids = st.one_of(
    st.integers(0, 5),
    st.sampled_from(["0", "1", "task-2", "x", "", "1.0", "-1"]),
    st.just(None),
    st.sampled_from([1.0, 2.5, -3, 10**12, 10**30, float("nan"), float("inf")]),
    st.booleans(),
)
_references = st.builds(
    lambda form, resource, number: form.format(resource, number),
    st.sampled_from(["<{}>-{}", "<{}-{}>", "{{{{task_{1}.{0}}}}}", "{}-{}", "see <{}>-{} too", "<{0}>-{1}, <{0}>-0"]),
    st.sampled_from(["GENERATED", "resource", "text", "image", "audio", "labels", "mask"]),
    st.integers(0, 6),
)
_words = st.one_of(
    _references,
    st.sampled_from(
        ["<file1>", "file2", "notes.txt", "sign.png", "<file9>", "/etc/passwd", "https://a/b.png", "3", "yes"]
    ),
    st.text(max_size=20),
)
_values = st.recursive(
    st.one_of(_words, st.integers(), st.floats(), st.booleans(), st.none()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_names = st.one_of(
    st.sampled_from(
        ["text", "image", "audio", "question", "context", "mask", "sentences", "img", "text2", "threshold"]
    ),
    st.sampled_from(["target_language", "candidate_labels", "width", "seed", "speed", "image2", ""]),
    st.text(max_size=6),
)
_tasks = st.fixed_dictionaries(
    {
        "task": st.one_of(
            st.sampled_from(sorted(STANDARD)), st.sampled_from(["OCR", "tts", "magic", ""]), st.text(max_size=9)
        )
    },
    optional={
        "id": _ids,
        "dep": st.one_of(_ids, st.lists(_ids, max_size=3)),
        "args": st.one_of(st.dictionaries(_names, _values, max_size=4), _values),
        "source": _values,
    },
)
_plans = st.lists(_tasks, max_size=7)
_written: Sequence[Callable[[object], str]] = (
    json.dumps,
    lambda plan: json.dumps(plan, indent=1, ensure_ascii=False),
    str,
    lambda plan: "Here you are:\n```json\n" + json.dumps({"tasks": plan}) + "\n```\nIt's {done}.",
    lambda plan: "\n".join(map(json.dumps, plan)) if isinstance(plan, list) else str(plan),
    lambda plan: json.dumps(plan).replace('"', "'"),
    lambda plan: json.dumps(plan).replace("}", ",}").replace('"args"', "args"),
)
_texts = st.builds(lambda how, plan: how(plan), st.sampled_from(_written), _plans)
_noise = st.text(alphabet=st.sampled_from(list("{}[]\",:'\\`<>/*#0-1eE \n\ud83d\x00“”tasknull")), max_size=8)


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    text: str = draw(_texts)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 9)))
        text = text[:start] + draw(_noise) + text[end:]
    return text


_hostile = st.builds(
    lambda opened, times, text: opened * times + text,
    st.sampled_from(['{"a":', "[", '{"task":"t","args":', "<", '"', "{", "/*", "\\", "<think>", "{'"]),
    st.integers(0, 200),
    _texts,
)
_anything = st.one_of(_texts, _mutated(), _hostile, st.text())

# ---------------------------------------------------------------- what holds for all


def read(text: str, *, piece: int = 0) -> tuple[list[RawTask], PlanReader]:
    reader = PlanReader()
    step = piece or max(len(text), 1)
    found = [raw for at in range(0, len(text), step) for raw in reader.feed(text[at : at + step])]
    return found, reader


def drafted(text: str, *, cut: bool = False, prior: Sequence[Task] = ()) -> tuple[list[Task], PlanRepairer]:
    drafting = PlanRepairer(STANDARD, INPUTS, prior)
    out = [task for raw in read(text)[0] for task in drafting.add(raw)]
    return [*out, *drafting.close(cut=cut)], drafting


@bounded
@given(_anything)
def test_any_text_gives_a_plan_that_can_be_run_or_complaints(text: str) -> None:
    tasks, drafting = drafted(text)
    assert tasks == drafting.tasks
    assert not tasks or complaints(tasks, STANDARD, INPUTS) == []
    assert len(tasks) + len(drafting.complaints) > 0 or not read(text)[0]
    assert all(str(fault) for fault in drafting.complaints)


@bounded
@given(_anything)
def test_a_plan_after_others_is_valid_together_with_them(text: str) -> None:
    tasks, _ = drafted(text, prior=PRIOR)
    assert complaints([*PRIOR, *tasks], STANDARD, INPUTS) == []
    assert all(task.id > PRIOR[-1].id for task in tasks)


@bounded
@given(_anything)
def test_every_plan_can_be_sent(text: str) -> None:
    for task in drafted(text)[0]:
        str(task).encode()
        json.loads(task.parameters_json or "{}", parse_constant=lambda name: 1 / 0)


@bounded
@given(_anything, st.integers(1, 7))
def test_pieces_of_text_give_what_the_whole_gives(text: str, piece: int) -> None:
    at_once, whole = read(text)
    in_pieces, reader = read(text, piece=piece)
    assert in_pieces == at_once
    assert reader.notes == whole.notes
    assert reader.dropped == whole.dropped
    assert reader.is_incomplete == whole.is_incomplete


@settings(bounded, max_examples=40)
@given(_texts | _mutated())
def test_a_plan_cut_anywhere_is_the_beginning_of_the_whole(text: str) -> None:
    whole, _ = drafted(text)
    drafting, reader = PlanRepairer(STANDARD, INPUTS), PlanReader()
    for char in text:
        for raw in reader.feed(char):
            drafting.add(raw)
        assert drafting.tasks == whole[: len(drafting.tasks)]
    assert drafting.close(cut=True) == []


@settings(bounded, max_examples=60)
@given(_texts, st.data())
def test_a_plan_cut_and_closed_is_valid_by_itself(text: str, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(text)))
    whole, (tasks, _) = drafted(text)[0], drafted(text[:end], cut=True)
    assert tasks == whole[: len(tasks)]
    assert not tasks or complaints(tasks, STANDARD, INPUTS) == []


@settings(bounded, max_examples=60)
@given(_plans, _plans)
def test_a_second_answer_only_adds_to_the_plan(first: object, second: object) -> None:
    before, drafting = drafted(json.dumps(first))
    after = [task for raw in read(json.dumps(second))[0] for task in drafting.add(raw)]
    after += drafting.close()
    assert drafting.tasks == before + after
    assert not drafting.tasks or complaints(drafting.tasks, STANDARD, INPUTS) == []
