import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import (
    ON_DISCONNECT_CANCEL,
    ON_DISCONNECT_UNSPECIFIED,
    ROLE_USER,
    RUN_STATE_CANCELLED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
)
from tests.support.openai_clients import EVENTS, OpenAIGateway, answer_chunk, run_ended, start_openai_gateway
from tests.support.samples import DATA

REQUEST: Any = {"model": "hugginggpt", "input": "Is this good news? Read it aloud."}


@pytest.fixture
async def openai_gateway(tmp_path: Path) -> AsyncIterator[OpenAIGateway]:
    async with start_openai_gateway(tmp_path, EVENTS) as openai_gateway:
        yield openai_gateway


@pytest.fixture
async def idle_openai_gateway(tmp_path: Path) -> AsyncIterator[OpenAIGateway]:
    """A gateway whose runs emit no events until the test sends them."""
    async with start_openai_gateway(tmp_path, ()) as openai_gateway:
        yield openai_gateway


async def test_response_has_reasoning_and_answer(openai_gateway: OpenAIGateway) -> None:
    response = await openai_gateway.client.responses.create(**REQUEST, metadata={"a": "b"}, instructions="Be brief.")
    assert response.id == "resp_1"
    assert response.status == "completed"
    assert response.model == "hugginggpt"
    assert not response.background
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output_text.startswith("It is good news.\n\n[speech.wav](http://")
    assert response.metadata == {"a": "b"}
    assert response.instructions == "Be brief."
    assert response.usage
    assert response.usage.input_tokens == 7
    assert response.usage.output_tokens == 5
    spec = openai_gateway.last().spec
    assert spec.on_disconnect == ON_DISCONNECT_CANCEL
    assert spec.request == REQUEST["input"]
    assert [(turn.role, turn.text) for turn in spec.history] == [(ROLE_USER, "Be brief.")]


async def test_response_events_are_numbered_typed_and_end_with_response(openai_gateway: OpenAIGateway) -> None:
    stream = await openai_gateway.client.responses.create(**REQUEST, stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    last: Any = events[-1]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == (
        last.response.output_text
    )
    assert last.response == await openai_gateway.client.responses.retrieve("resp_1")


async def test_official_client_parses_the_stream(openai_gateway: OpenAIGateway) -> None:
    async with openai_gateway.client.responses.stream(**REQUEST) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_response()
    assert final.output_text.startswith("It is good news.")


async def test_the_sync_client_reads_both(openai_gateway: OpenAIGateway) -> None:
    def send() -> tuple[str, list[str]]:
        whole: Response = openai_gateway.sync.responses.create(**REQUEST)
        return whole.output_text, [event.type for event in openai_gateway.sync.responses.create(**REQUEST, stream=True)]

    text, kinds = await asyncio.to_thread(send)
    assert text.startswith("It is good news.")
    assert kinds[-1] == "response.completed"


async def test_messages_with_images_and_files_are_accepted(openai_gateway: OpenAIGateway) -> None:
    picture = base64.b64encode((DATA / "sign.png").read_bytes()).decode()
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{picture}"},
        {"type": "input_file", "filename": "a.txt", "file_data": base64.b64encode(b"words").decode()},
    ]
    items: Any = [
        {"role": "user", "content": "Hello"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello!"}]},
        {"role": "user", "content": content},
    ]
    await openai_gateway.client.responses.create(model="hugginggpt", input=items)
    spec = openai_gateway.last().spec
    assert [turn.text for turn in spec.history] == ["Hello", "Hello!"]
    assert spec.request == "What is this?"
    assert [each.value.artifact.media_type for each in spec.inputs] == ["image/png", "text/plain"]
    listed = (await openai_gateway.client.responses.input_items.list("resp_1")).data
    assert [item.type for item in listed] == ["message", "message", "message"]


class Mood(BaseModel):
    sentiment: Literal["positive", "negative"]
    confidence: float


async def test_schema_answer_is_the_same_when_read_later(tmp_path: Path) -> None:
    script = (answer_chunk('{"sentiment":"positive","confidence":0.98}'), run_ended())
    async with start_openai_gateway(tmp_path, script) as openai_gateway:
        parsed = await openai_gateway.client.responses.parse(**REQUEST, text_format=Mood)
        later = await openai_gateway.client.responses.retrieve(parsed.id)
    assert parsed.output_parsed == Mood(sentiment="positive", confidence=0.98)
    assert later.output_text == parsed.output_text
    assert later.text == parsed.text


async def test_missing_schema_answer_is_a_refusal(tmp_path: Path) -> None:
    failure = Failure(reason="ANSWER_SCHEMA", message="no LLM is configured")
    script = (*EVENTS[:3], run_ended(state=RUN_STATE_INCOMPLETE, failure=failure))
    async with start_openai_gateway(tmp_path, script) as openai_gateway:
        response_ = await openai_gateway.client.responses.parse(**REQUEST, text_format=Mood)
    content: Any = response_.output[-1]
    assert content.content[0].type == "refusal"
    assert content.content[0].refusal == "No LLM is configured"


async def test_a_response_continues_another(openai_gateway: OpenAIGateway) -> None:
    first = await openai_gateway.client.responses.create(**REQUEST)
    second = await openai_gateway.client.responses.create(**REQUEST, previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert openai_gateway.last().spec.parent_run_id == "run_1"


async def test_background_response_is_queued_polled_and_completed(idle_openai_gateway: OpenAIGateway) -> None:
    response = await idle_openai_gateway.client.responses.create(**REQUEST, background=True)
    assert response.status == "queued"
    assert response.background
    run = await idle_openai_gateway.orchestrator.arrivals.get()
    assert run.spec.on_disconnect == ON_DISCONNECT_UNSPECIFIED
    run.send(answer_chunk("So "))
    active = await idle_openai_gateway.client.responses.retrieve(response.id)
    assert active.status == "in_progress"
    assert active.output_text == "So "
    run.send(answer_chunk("it is."), run_ended())
    ended = await idle_openai_gateway.client.responses.retrieve(response.id)
    assert ended.status == "completed"
    assert ended.output_text == "So it is."
    assert ended.completed_at is not None
    assert not idle_openai_gateway.orchestrator.cancelled


async def test_background_response_is_cancelled_and_deleted(idle_openai_gateway: OpenAIGateway) -> None:
    response = await idle_openai_gateway.client.responses.create(**REQUEST, background=True)
    assert (await idle_openai_gateway.client.responses.cancel(response.id)).status == "cancelled"
    assert (await idle_openai_gateway.client.responses.cancel(response.id)).status == "cancelled"
    await idle_openai_gateway.client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await idle_openai_gateway.client.responses.retrieve(response.id)


async def test_disconnect_after_create_leaves_no_queued_run(idle_openai_gateway: OpenAIGateway) -> None:
    for background in (True, False):
        stream = await idle_openai_gateway.client.responses.create(**REQUEST, stream=True, background=background)
        await stream.close()
        run = await idle_openai_gateway.orchestrator.arrivals.get()
        async with asyncio.timeout(5):
            await run.disconnected.wait()
            if not background:
                await idle_openai_gateway.orchestrator.cancel_received.wait()
        assert (idle_openai_gateway.orchestrator.cancelled == []) is background
        if background:
            run.send(answer_chunk("Done."), run_ended())
        found = await idle_openai_gateway.client.responses.retrieve(f"resp_{run.run_id.removeprefix('run_')}")
        assert found.status == ("completed" if background else "cancelled")


async def test_stream_resumed_after_any_event_repeats_none(idle_openai_gateway: OpenAIGateway) -> None:
    stream = await idle_openai_gateway.client.responses.create(**REQUEST, background=True, stream=True)
    run = await idle_openai_gateway.orchestrator.arrivals.get()
    for event in EVENTS[:-1]:
        run.send(event)
    seen = []
    async for each in stream:
        seen.append(each)
        if each.type == "response.output_text.delta" and each.delta == "good news.":
            break
    await stream.close()
    run.send(EVENTS[-1])
    while seen[-1].type != "response.completed":
        rest = await idle_openai_gateway.client.responses.retrieve(
            "resp_1", stream=True, starting_after=seen[-1].sequence_number
        )
        seen.append(await anext(rest))
        await rest.close()
    whole = [event async for event in await idle_openai_gateway.client.responses.retrieve("resp_1", stream=True)]
    assert [each.sequence_number for each in seen] == list(range(len(whole)))
    assert seen == whole
    for number in range(len(whole)):
        rest = await idle_openai_gateway.client.responses.retrieve("resp_1", stream=True, starting_after=number)
        assert [event async for event in rest] == whole[number + 1 :]


async def test_events_are_the_same_after_orchestrator_loss(tmp_path: Path) -> None:
    async with start_openai_gateway(tmp_path, EVENTS, breaks=(2, 5, 8)) as openai_gateway:
        broken = [event async for event in await openai_gateway.client.responses.create(**REQUEST, stream=True)]
        again = [event async for event in await openai_gateway.client.responses.retrieve("resp_1", stream=True)]
        assert broken == again


async def test_browsers_resume_by_last_event_id(openai_gateway: OpenAIGateway) -> None:
    await openai_gateway.client.responses.create(**REQUEST)
    path = "/v1/responses/resp_1?stream=true"
    whole = (await openai_gateway.gateway.http.get(path)).text
    rest = (await openai_gateway.gateway.http.get(path, headers={"last-event-id": "3"})).text
    assert whole.endswith(rest.removeprefix(": accepted\n"))
    assert rest.startswith(": accepted\nid: 4\n")


@pytest.mark.parametrize(
    ("end", "status", "detail"),
    [
        (run_ended(state=RUN_STATE_INCOMPLETE, failure=Failure(reason="DEADLINE")), "incomplete", "max_output_tokens"),
        (run_ended(state=RUN_STATE_FAILED, failure=Failure(message="no way")), "failed", "no way"),
        (run_ended(state=RUN_STATE_CANCELLED, failure=Failure(reason="CANCELLED")), "cancelled", None),
    ],
)
async def test_every_final_state_has_a_status(tmp_path: Path, end: Any, status: str, detail: str | None) -> None:
    async with start_openai_gateway(tmp_path, (answer_chunk("Half."), end)) as openai_gateway:
        events: Any = [event async for event in await openai_gateway.client.responses.create(**REQUEST, stream=True)]
        last = events[-1]
        assert last.type == ("response.failed" if status == "failed" else "response.incomplete")
        assert last.response.status == status
        why = last.response.incomplete_details and last.response.incomplete_details.reason
        assert (why or (last.response.error and last.response.error.message)) == detail


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"background": True, "store": False}, "store"),
        ({"metadata": {"a": "b" * 513}}, "metadata"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"oneOf": []}}}}, "text.format.schema"),
        ({"previous_response_id": "chatcmpl-1"}, None),
    ],
)
async def test_unsupported_requests_are_rejected(
    openai_gateway: OpenAIGateway, change: dict[str, Any], param: str | None
) -> None:
    with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as raised:
        await openai_gateway.client.responses.create(**REQUEST | change)
    assert raised.value.param == param
