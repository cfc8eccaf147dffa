"""Plans repaired from arbitrary LLM answers are valid and only grow."""

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner.llm.json_stream import PlanReader, RawTask
from services.planner.llm.repair import PlanRepairer
from services.planner.plan import Input, Reference, Task, Value
from services.planner.plan_assembler import PlanAssembler
from services.planner.plan_check import find_faults
from tests.support.plans import STANDARD, file

pytestmark = pytest.mark.slow

INPUTS: dict[str, Value] = {"file1": file("sign.png"), "file2": file("talk.wav"), "file3": file("notes.txt")}
PRIOR = (
    Task(3, "image-to-text", {"image": Input("file1")}),
    Task(4, "text-to-speech", {"text": Reference(3, "text")}),
)

bounded = settings(max_examples=150, deadline=None, derandomize=True, database=None)

# ---------------------------------------------------------------- valid and invalid plans

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
_text_values = st.one_of(
    _references,
    st.sampled_from(
        ["<file1>", "file2", "notes.txt", "sign.png", "<file9>", "/etc/passwd", "https://a/b.png", "3", "yes"]
    ),
    st.text(max_size=20),
)
_values = st.recursive(
    st.one_of(_text_values, st.integers(), st.floats(), st.booleans(), st.none()),
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
_spellings: Sequence[Callable[[object], str]] = (
    json.dumps,
    lambda plan: json.dumps(plan, indent=1, ensure_ascii=False),
    str,
    lambda plan: "Here you are:\n```json\n" + json.dumps({"tasks": plan}) + "\n```\nIt's {done}.",
    lambda plan: "\n".join(map(json.dumps, plan)) if isinstance(plan, list) else str(plan),
    lambda plan: json.dumps(plan).replace('"', "'"),
    lambda plan: json.dumps(plan).replace("}", ",}").replace('"args"', "args"),
)
_texts = st.builds(lambda spelling, plan: spelling(plan), st.sampled_from(_spellings), _plans)
_noise = st.text(alphabet=st.sampled_from(list("{}[]\",:'\\`<>/*#0-1eE \n\ud83d\x00“”tasknull")), max_size=8)


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    text: str = draw(_texts)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 9)))
        text = text[:start] + draw(_noise) + text[end:]
    return text


_adversarial = st.builds(
    lambda opening, times, text: opening * times + text,
    st.sampled_from(['{"a":', "[", '{"task":"t","args":', "<", '"', "{", "/*", "\\", "<think>", "{'"]),
    st.integers(0, 200),
    _texts,
)
_anything = st.one_of(_texts, _mutated(), _adversarial, st.text())

# ---------------------------------------------------------------- properties


def read(text: str, *, piece: int = 0) -> tuple[list[RawTask], PlanReader]:
    reader = PlanReader()
    step = piece or max(len(text), 1)
    raw_tasks = [raw for at in range(0, len(text), step) for raw in reader.feed(text[at : at + step])]
    return raw_tasks, reader


def repaired_plan(text: str, *, cut: bool = False, prior: Sequence[Task] = ()) -> tuple[list[Task], PlanRepairer]:
    repairer = PlanRepairer(STANDARD, INPUTS, PlanAssembler(prior))
    out = [task for raw in read(text)[0] for task in repairer.add(raw)]
    return [*out, *repairer.close(cut=cut)], repairer


@bounded
@given(_anything)
def test_any_text_yields_a_valid_plan_or_faults(text: str) -> None:
    tasks, repairer = repaired_plan(text)
    assert tasks == repairer.tasks
    assert not tasks or find_faults(tasks, STANDARD, INPUTS) == []
    assert len(tasks) + len(repairer.faults) > 0 or not read(text)[0]
    assert all(str(fault) for fault in repairer.faults)


@bounded
@given(_anything)
def test_plan_is_valid_together_with_prior_tasks(text: str) -> None:
    tasks, _ = repaired_plan(text, prior=PRIOR)
    assert find_faults([*PRIOR, *tasks], STANDARD, INPUTS) == []
    assert all(task.id > PRIOR[-1].id for task in tasks)


@bounded
@given(_anything)
def test_every_plan_can_be_serialized(text: str) -> None:
    for task in repaired_plan(text)[0]:
        str(task).encode()
        json.loads(task.parameters_json or "{}", parse_constant=lambda name: 1 / 0)


@bounded
@given(_anything, st.integers(1, 7))
def test_chunked_text_is_read_like_complete_text(text: str, piece: int) -> None:
    at_once, complete = read(text)
    in_pieces, reader = read(text, piece=piece)
    assert in_pieces == at_once
    assert reader.notes == complete.notes
    assert reader.dropped == complete.dropped
    assert reader.is_incomplete == complete.is_incomplete


@settings(bounded, max_examples=40)
@given(_texts | _mutated())
def test_partial_plan_is_a_prefix_of_the_complete_plan(text: str) -> None:
    complete, _ = repaired_plan(text)
    repairer, reader = PlanRepairer(STANDARD, INPUTS), PlanReader()
    for char in text:
        for raw in reader.feed(char):
            repairer.add(raw)
        assert repairer.tasks == complete[: len(repairer.tasks)]
    assert repairer.close(cut=True) == []


@settings(bounded, max_examples=60)
@given(_texts, st.data())
def test_truncated_plan_is_valid(text: str, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(text)))
    complete, (tasks, _) = repaired_plan(text)[0], repaired_plan(text[:end], cut=True)
    assert tasks == complete[: len(tasks)]
    assert not tasks or find_faults(tasks, STANDARD, INPUTS) == []


@settings(bounded, max_examples=60)
@given(_plans, _plans)
def test_second_answer_only_adds_tasks(first: object, second: object) -> None:
    before, repairer = repaired_plan(json.dumps(first))
    after = [task for raw in read(json.dumps(second))[0] for task in repairer.add(raw)]
    after += repairer.close()
    assert repairer.tasks == before + after
    assert not repairer.tasks or find_faults(repairer.tasks, STANDARD, INPUTS) == []
