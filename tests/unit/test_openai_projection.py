"""Projections of runs to chat completions and responses: they match OpenAI's types, and event numbers are stable."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.core.validation import OPENAI_METADATA
from gateway.openai.chat import Completion
from gateway.openai.request_options import RequestOptions
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
FORMS: Sequence[dict[str, Any]] = (
    {"type": "text"},
    {"type": "json_object"},
    {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True},
)

INNER_EVENTS = st.sampled_from(
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


def run(form: dict[str, Any], events: Sequence[RunEvent], *, background: bool = False) -> list[RunEvent]:
    """An accepted run with the given events, numbered from 1."""
    spec = RunSpec(request="do it")
    RequestOptions(form=form, background=background).store_in(spec)
    spec.answer_options.json_schema = json.dumps(form["schema"]) if "schema" in form else ""
    numbered = []
    for number, event in enumerate([RunEvent(run_accepted=RunAccepted(spec=spec)), *events], start=1):
        numbered.append(RunEvent(run_id="run_1", sequence=number))
        numbered[-1].MergeFrom(event)
    return numbered


def projected(events: Sequence[RunEvent]) -> tuple[list[Event], Projection]:
    response_projection = Projection("http://h")
    return [each for event in events for each in response_projection.take(event)], response_projection


RUNS = st.builds(
    lambda form, events, end, background: run(form, [*events, end], background=background),
    st.sampled_from(FORMS),
    st.lists(INNER_EVENTS, max_size=12),
    ENDS,
    st.booleans(),
)


@settings(deadline=None, derandomize=True, database=None)
@given(RUNS)
def test_events_and_response_match_openai_types(events: list[RunEvent]) -> None:
    event_type: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    sent, response_projection = projected(events)
    for each in sent:
        event_type.validate_python(each)
    Response.model_validate(response_projection.response())
    assert sent[0]["type"] == "response.created"
    assert sent[-1]["response"] == response_projection.response()
    assert [each["sequence_number"] for each in sent] == list(range(len(sent)))


@settings(deadline=None, derandomize=True, database=None)
@given(RUNS, st.data())
def test_event_numbers_are_stable(events: list[RunEvent], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(events)))
    complete, _ = projected(events)
    partial, _ = projected(events[:cut])
    assert complete[: len(partial)] == partial


@settings(deadline=None, derandomize=True, database=None)
@given(RUNS)
def test_deltas_add_up_to_items(events: list[RunEvent]) -> None:
    sent, response_projection = projected(events)
    for index, item in enumerate(response_projection.response()["output"]):
        deltas = "".join(
            each["delta"] for each in sent if each.get("output_index") == index and each["type"].endswith(".delta")
        )
        (part,) = item.get("summary") or item["content"]
        assert deltas == (part.get("text") or part.get("refusal"))
        kinds = [each["type"] for each in sent if each.get("output_index") == index]
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
        sent = "".join(choice["delta"].get(key) or "" for chunk in chunks for choice in chunk["choices"])
        assert sent == (message[key] or "")


@pytest.mark.parametrize("form", FORMS)
def test_text_follows_reasoning(form: dict[str, Any]) -> None:
    late = (answer_chunk("Once."), task_planned(9, "translation"), task_succeeded(9), run_ended())
    sent, response_projection = projected(run(form, [*EVENTS[:-1], *late]))
    kinds = [each["item"]["type"] for each in sent if each["type"] == "response.output_item.added"]
    assert kinds == ["reasoning", "message"]
    assert response_projection.response()["text"] == {"format": form}


def test_background_run_taken_over_before_planning_is_in_progress() -> None:
    events = run({"type": "text"}, [RunEvent(taken_over=TakenOver(owner="b"))], background=True)
    response_projection = Projection("http://h")
    response_projection.take(events[0])
    assert response_projection.response()["status"] == "queued"
    (started,) = response_projection.take(events[1])
    assert started["type"] == "response.in_progress"
    assert started["response"]["status"] == "in_progress"


def test_event_of_an_unplanned_task_is_ignored() -> None:
    ended = task_succeeded(7, text=Value(text="hello"))
    sent, _ = projected(run({"type": "json_object"}, [ended, run_ended()]))
    assert '"results":[]' in sent[-1]["response"]["output"][-1]["content"][0]["text"]


@pytest.mark.parametrize("note", ["", "[]", "3", "{", '{"form":3}', '{"model":1,"new":2}', '{"projection":99}'])
def test_run_of_other_api_is_rendered(note: str) -> None:
    spec = RunSpec(request="do it", metadata={OPENAI_METADATA: note})
    response_projection = projection(spec, "")
    response_projection.take(RunEvent(run_id="run_1", sequence=1, run_accepted=RunAccepted(spec=spec)))
    Response.model_validate(response_projection.response())
