"""Everything sent is what OpenAI's own types say, and what is numbered once keeps its number."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.openai.chat_completion import Completion
from gateway.openai.request_options import METADATA_NAME, RequestOptions
from gateway.openai.response_projection import Event, Projection, projection
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.event_pb2 import (
    RunAccepted,
    RunEnded,
    RunEvent,
    TakenOver,
    TaskEnded,
    TaskProgress,
    TaskWaiting,
)
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.plan_pb2 import NOTE_KIND_UNMAPPED, Note
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    TASK_STATE_FAILED,
    RunSpec,
    TaskResult,
)
from tests.support.openai_clients import EVENTS, answer_chunk, run_ended, task_planned, task_succeeded

SCHEMA = {"type": "object", "properties": {"sentiment": {"enum": ["positive"]}}, "required": ["sentiment"]}
NEVER = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
FORMS: Sequence[dict[str, Any]] = (
    {"type": "text"},
    {"type": "json_object"},
    {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True},
    {"type": "json_schema", "name": "a", "schema": NEVER, "strict": None},
)

HAPPENING = st.sampled_from(
    [
        task_planned(1, "image-to-text"),
        RunEvent(task_id=1, task_waiting=TaskWaiting(expert="e", reason="it sleeps")),
        RunEvent(task_id=1, task_progress=TaskProgress(fraction=0.5)),
        RunEvent(plan_note=Note(kind=NOTE_KIND_UNMAPPED, text="no task for that")),
        RunEvent(
            task_id=1,
            task_ended=TaskEnded(state=TASK_STATE_FAILED, result=TaskResult(failure=Failure(message="it broke"))),
        ),
        *EVENTS[:-1],
    ]
)
STATES = (RUN_STATE_COMPLETED, RUN_STATE_INCOMPLETE, RUN_STATE_FAILED, RUN_STATE_CANCELLED)
ENDS = st.builds(
    lambda state, reason: RunEvent(run_ended=RunEnded(state=state, failure=Failure(reason=reason, message="so"))),
    st.sampled_from(STATES),
    st.sampled_from(["", "DEADLINE", "MODEL_FAILED"]),
)


def run(form: dict[str, Any], happening: Sequence[RunEvent], *, background: bool = False) -> list[RunEvent]:
    """A run's events, numbered."""
    spec = RunSpec(request="do it")
    RequestOptions(form=form, background=background).store_in(spec)
    told = []
    for number, event in enumerate([RunEvent(run_accepted=RunAccepted(spec=spec)), *happening], start=1):
        numbered_lines = RunEvent(run_id="run_1", sequence=number)
        numbered_lines.MergeFrom(event)
        told.append(numbered_lines)
    return told


def projected(events: Sequence[RunEvent]) -> tuple[list[Event], Projection]:
    made = Projection("http://h")
    return [each for event in events for each in made.take(event)], made


RUNS = st.builds(
    lambda form, happening, end, background: run(form, [*happening, end], background=background),
    st.sampled_from(FORMS),
    st.lists(HAPPENING, max_size=12),
    ENDS,
    st.booleans(),
)


@settings(deadline=None, derandomize=True, database=None)
@given(RUNS)
def test_events_and_response_match_openai_types(events: list[RunEvent]) -> None:
    reader: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    told, made = projected(events)
    for each in told:
        reader.validate_python(each)
    Response.model_validate(made.response())
    assert told[0]["type"] == "response.created"
    assert told[-1]["response"] == made.response()
    assert [each["sequence_number"] for each in told] == list(range(len(told)))


@settings(deadline=None, derandomize=True, database=None)
@given(RUNS, st.data())
def test_event_numbers_are_stable(events: list[RunEvent], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(events)))
    whole, _ = projected(events)
    begun, _ = projected(events[:cut])
    assert whole[: len(begun)] == begun


@settings(deadline=None, derandomize=True, database=None)
@given(RUNS)
def test_deltas_add_up_to_items(events: list[RunEvent]) -> None:
    told, made = projected(events)
    for index, item in enumerate(made.response()["output"]):
        deltas = "".join(
            each["delta"] for each in told if each.get("output_index") == index and each["type"].endswith(".delta")
        )
        (part,) = item.get("summary") or item["content"]
        assert deltas == (part.get("text") or part.get("refusal"))
        kinds = [each["type"] for each in told if each.get("output_index") == index]
        assert kinds[0] == "response.output_item.added"
        assert kinds[-1] == "response.output_item.done"


@settings(deadline=None, derandomize=True, database=None)
@given(RUNS)
def test_completions_match_openai_types_and_chunks(events: list[RunEvent]) -> None:
    completion = Completion("http://h", usage=True)
    chunks = [chunk for event in events for chunk in completion.take(event)]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    message = completion.completion()["choices"][0]["message"]
    ChatCompletion.model_validate(completion.completion())
    for key in ("content", "refusal"):
        told = "".join(choice["delta"].get(key) or "" for chunk in chunks for choice in chunk["choices"])
        assert told == (message[key] or "")


@pytest.mark.parametrize("form", FORMS)
def test_text_follows_reasoning(form: dict[str, Any]) -> None:
    late = (answer_chunk("Once."), task_planned(9, "translation"), task_succeeded(9), run_ended())
    told, made = projected(run(form, [*EVENTS[:-1], *late]))
    kinds = [each["item"]["type"] for each in told if each["type"] == "response.output_item.added"]
    assert kinds == ["reasoning", "message"]
    assert made.response()["text"] == {"format": form}


def test_background_run_taken_over_before_planning_is_in_progress() -> None:
    events = run({"type": "text"}, [RunEvent(taken_over=TakenOver(owner="b"))], background=True)
    made = Projection("http://h")
    made.take(events[0])
    assert made.response()["status"] == "queued"
    (started,) = made.take(events[1])
    assert started["type"] == "response.in_progress"
    assert started["response"]["status"] == "in_progress"


def test_event_of_an_unplanned_task_is_ignored() -> None:
    ended = task_succeeded(7, text=Value(text="hello"))
    told, _ = projected(run({"type": "json_object"}, [ended, run_ended()]))
    assert '"results":[]' in told[-1]["response"]["output"][-1]["content"][0]["text"]


@pytest.mark.parametrize("note", ["", "[]", "3", "{", '{"form":3}', '{"model":1,"new":2}', '{"projection":99}'])
def test_run_of_other_api_is_rendered(note: str) -> None:
    spec = RunSpec(request="do it", metadata={METADATA_NAME: note})
    made = projection(spec, "")
    made.take(RunEvent(run_id="run_1", sequence=1, run_accepted=RunAccepted(spec=spec)))
    Response.model_validate(made.response())
