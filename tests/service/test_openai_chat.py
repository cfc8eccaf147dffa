import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel

from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import (
    ON_DISCONNECT_CANCEL,
    ROLE_ASSISTANT,
    ROLE_USER,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
)
from tests.support.openai_clients import EVENTS, OpenAIGateway, answer_chunk, run_ended, start_openai_gateway
from tests.support.samples import DATA

REQUEST: Any = {"model": "hugginggpt", "messages": [{"role": "user", "content": "Is this good news? Read it aloud."}]}

TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.fixture
async def openai_gateway(tmp_path: Path) -> AsyncIterator[OpenAIGateway]:
    async with start_openai_gateway(tmp_path, EVENTS) as openai_gateway:
        yield openai_gateway


def data_url(name: str, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode((DATA / name).read_bytes()).decode()}"


def request_text(openai_gateway: OpenAIGateway) -> str:
    site = f"http://127.0.0.1:{openai_gateway.gateway.http_port}/v1/artifacts"
    return f"It is good news.\n\n[speech.wav]({site}/{'b' * 64})\n\n![boxes \\[1\\].png]({site}/{'a' * 64})"


async def test_completion_has_answer_artifacts_and_usage(openai_gateway: OpenAIGateway) -> None:
    completion = await openai_gateway.client.chat.completions.create(**REQUEST)
    assert completion.id == "chatcmpl-1"
    assert completion.object == "chat.completion"
    assert completion.model == "hugginggpt"
    (choice,) = completion.choices
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "stop"
    assert choice.message.content == request_text(openai_gateway)
    assert completion.usage
    assert completion.usage.prompt_tokens == 7
    assert completion.usage.completion_tokens == 5
    assert completion.usage.total_tokens == 12
    extras: Any = completion.model_extra
    assert extras["hugginggpt"]["run_id"] == "run_1"
    assert extras["hugginggpt"]["state"] == "completed"
    assert [each["name"] for each in extras["hugginggpt"]["artifacts"]] == ["speech.wav", "boxes [1].png"]
    assert openai_gateway.last().spec.on_disconnect == ON_DISCONNECT_CANCEL


async def test_artifact_urls_use_https_behind_tls_proxy(tmp_path: Path) -> None:
    async with start_openai_gateway(tmp_path, EVENTS, settings={"tls_in_front": True}) as openai_gateway:
        content = (await openai_gateway.client.chat.completions.create(**REQUEST)).choices[0].message.content
        assert content == request_text(openai_gateway).replace("http://", "https://")


async def test_chunks_equal_completion_with_progress_as_reasoning(openai_gateway: OpenAIGateway) -> None:
    stream = await openai_gateway.client.chat.completions.create(
        **REQUEST, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == request_text(openai_gateway)
    thoughts = "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas)
    assert thoughts.splitlines() == [
        "1. text-classification",
        "Task 1 running on a/b",
        "Task 1 done.",
        "2. text-to-speech",
        "Task 2 running on espeak",
        "Task 2 done.",
    ]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert not chunks[-1].choices
    assert chunks[-1].usage
    assert chunks[-1].usage.total_tokens == 12
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_sync_client_reads_both(openai_gateway: OpenAIGateway) -> None:
    def send() -> tuple[str | None, str]:
        whole = openai_gateway.sync.chat.completions.create(**REQUEST).choices[0].message.content
        chunks = openai_gateway.sync.chat.completions.create(**REQUEST, stream=True)
        return whole, "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    whole, streamed = await asyncio.to_thread(send)
    assert whole == streamed == request_text(openai_gateway)


async def test_images_audio_and_files_become_inputs(openai_gateway: OpenAIGateway) -> None:
    parts = [
        {"type": "text", "text": "What is in these?"},
        {"type": "image_url", "image_url": {"url": data_url("sign.png", "image/png")}},
        {"type": "input_audio", "input_audio": {"data": data_url("speech.wav", "").partition(",")[2], "format": "wav"}},
        {"type": "file", "file": {"filename": "notes.txt", "file_data": base64.b64encode(b"some words").decode()}},
        {"type": "file", "file": {"filename": "a.csv", "file_data": "data:text/csv,a%2Cb%0A1%2C2"}},
    ]
    messages: Any = [{"role": "user", "content": parts}]
    await openai_gateway.client.chat.completions.create(model="hugginggpt", messages=messages)
    spec = openai_gateway.last().spec
    assert spec.request == "What is in these?"
    kinds = [(each.name, each.value.artifact.name, each.value.artifact.media_type) for each in spec.inputs]
    assert kinds == [
        ("file1", "image.png", "image/png"),
        ("file2", "audio.wav", "audio/wav"),
        ("file3", "notes.txt", "text/plain"),
        ("file4", "a.csv", "text/csv"),
    ]
    stored = await openai_gateway.gateway.store.get("default", spec.inputs[0].value.artifact.sha256)
    assert stored == (DATA / "sign.png").read_bytes()


async def test_earlier_messages_are_history_with_their_artifacts(openai_gateway: OpenAIGateway) -> None:
    made = await openai_gateway.gateway.store.put("default", b"sound", media_type="audio/wav", name="speech.wav")
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_url("sign.png", "image/png")}}]},
        {
            "role": "assistant",
            "content": f"[speech.wav](http://elsewhere/v1/artifacts/{made.sha256}) {'/v1/artifacts/' + 'c' * 64}",
        },
        {"role": "user", "content": "Say it in French"},
    ]
    await openai_gateway.client.chat.completions.create(model="hugginggpt", messages=messages)
    history = openai_gateway.last().spec.history
    assert [(turn.role, turn.text[:9]) for turn in history] == [
        (ROLE_USER, "Be brief."),
        (ROLE_USER, ""),
        (ROLE_ASSISTANT, "[speech.w"),
    ]
    assert [each.value.artifact.name for turn in history for each in turn.attachments] == ["image.png", "speech.wav"]


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "gpt-4o"}, 404, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, 400, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": 3}]}, 400, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ""}]}, 400, "request"),
        ({"n": 2}, 400, "n"),
        ({"logprobs": True}, 400, "logprobs"),
        ({"stop": ["a", "b", "c", "d", "e"]}, 400, "stop"),
        ({"temperature": "hot"}, 422, "temperature"),
        ({"max_tokens": True}, 422, "max_tokens"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, 400, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, 400, "tool_choice"),
        ({"modalities": ["text", "audio"]}, 400, "modalities"),
        ({"response_format": {"type": "xml"}}, 400, "response_format.type"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"pattern": "a"}}}},
            400,
            "response_format.json_schema.schema",
        ),
    ],
)
async def test_errors_have_openai_format(
    openai_gateway: OpenAIGateway, change: dict[str, Any], status: int, param: str
) -> None:
    kinds = {400: openai.BadRequestError, 404: openai.NotFoundError, 422: openai.UnprocessableEntityError}
    with pytest.raises(kinds[status]) as raised:
        await openai_gateway.client.chat.completions.create(**REQUEST | change)
    error: Any = raised.value
    assert error.status_code == status
    assert error.param == param
    assert error.body["message"]
    assert error.code == ("model_not_found" if status == 404 else error.code)
    assert not openai_gateway.orchestrator.runs


@pytest.mark.parametrize("url", ["data:image/png;base64,!!!", "data:nonsense", "data:image/png;base64,R0lGODlhAAA="])
async def test_invalid_data_is_rejected(openai_gateway: OpenAIGateway, url: str) -> None:
    messages: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    with pytest.raises(openai.BadRequestError):
        await openai_gateway.client.chat.completions.create(model="hugginggpt", messages=messages)


async def test_internal_addresses_are_not_fetched(openai_gateway: OpenAIGateway) -> None:
    url = f"http://127.0.0.1:{openai_gateway.gateway.http_port}/healthz"
    messages: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    with pytest.raises((openai.BadRequestError, openai.PermissionDeniedError)):
        await openai_gateway.client.chat.completions.create(model="hugginggpt", messages=messages)


async def test_sampling_parameters_are_ignored(openai_gateway: OpenAIGateway) -> None:
    await openai_gateway.client.chat.completions.create(
        **REQUEST, temperature=0.1, seed=3, max_tokens=9, tools=TOOLS, user="u", top_p=0.5, presence_penalty=1
    )


class Mood(BaseModel):
    sentiment: Literal["positive", "negative"]
    confidence: float


NO_LLM = Failure(reason="ANSWER_SCHEMA", message="no LLM is configured", remedy="configure one")


async def test_schema_reaches_the_run_and_its_answer_is_parsed(tmp_path: Path) -> None:
    script = (answer_chunk('{"sentiment":"positive","confidence":0.98}'), run_ended())
    async with start_openai_gateway(tmp_path, script) as openai_gateway:
        parsed = await openai_gateway.client.chat.completions.parse(**REQUEST, response_format=Mood)
        schema = json.loads(openai_gateway.last().spec.answer_options.json_schema)
    assert parsed.choices[0].message.parsed == Mood(sentiment="positive", confidence=0.98)
    assert schema["required"] == ["sentiment", "confidence"]


async def test_schema_without_llm_is_a_refusal_with_reason(tmp_path: Path) -> None:
    script = (*EVENTS[:3], run_ended(state=RUN_STATE_INCOMPLETE, failure=NO_LLM))
    async with start_openai_gateway(tmp_path, script) as openai_gateway:
        parsed = await openai_gateway.client.chat.completions.parse(**REQUEST, response_format=Mood)
    message = parsed.choices[0].message
    assert message.parsed is None
    assert message.content is None
    assert message.refusal == "No LLM is configured. Configure one"


async def test_stop_reaches_the_run_with_a_warning(openai_gateway: OpenAIGateway) -> None:
    reply = await openai_gateway.client.chat.completions.with_raw_response.create(**REQUEST, stop="END")
    assert list(openai_gateway.last().spec.answer_options.stop) == ["END"]
    assert "stop" in reply.headers["x-hugginggpt-warning"]


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}])
async def test_optional_tools_are_ignored_with_a_warning(openai_gateway: OpenAIGateway, choice: Any) -> None:
    reply = await openai_gateway.client.chat.completions.with_raw_response.create(**REQUEST, tools=TOOLS, **choice)
    assert reply.headers["x-hugginggpt-warning"].startswith("tools are ignored")
    assert reply.parse().choices[0].message.content


async def test_request_without_ignored_parameters_has_no_warning(openai_gateway: OpenAIGateway) -> None:
    reply = await openai_gateway.client.chat.completions.with_raw_response.create(
        **REQUEST, tools=TOOLS, tool_choice="none"
    )
    assert "x-hugginggpt-warning" not in reply.headers


async def test_json_object_contains_all_results(openai_gateway: OpenAIGateway) -> None:
    completion = await openai_gateway.client.chat.completions.create(**REQUEST, response_format={"type": "json_object"})
    content = httpx.Response(200, content=completion.choices[0].message.content or "").json()
    assert content["answer"] == "It is good news."
    assert content["results"][0]["outputs"]["text"] == "POSITIVE (98 %)"


@pytest.mark.parametrize(
    ("script", "finish", "text"),
    [
        (
            (answer_chunk("Half."), run_ended(state=RUN_STATE_INCOMPLETE, failure=Failure(reason="DEADLINE"))),
            "length",
            "Half.",
        ),
        (
            (
                run_ended(
                    state=RUN_STATE_FAILED, failure=Failure(reason="UNPLANNABLE", message="no way", remedy="ask else")
                ),
            ),
            "stop",
            "No way. Ask else",
        ),
    ],
)
async def test_failure_is_reported_in_answer(tmp_path: Path, script: Any, finish: str, text: str) -> None:
    async with start_openai_gateway(tmp_path, script) as openai_gateway:
        (choice,) = (await openai_gateway.client.chat.completions.create(**REQUEST)).choices
        assert choice.finish_reason == finish
        assert choice.message.content == text


@pytest.mark.parametrize("stream", [True, False])
async def test_run_is_cancelled_when_client_disconnects(tmp_path: Path, stream: bool) -> None:
    async with start_openai_gateway(tmp_path, ()) as openai_gateway:
        pending: asyncio.Task[Any] = asyncio.create_task(
            openai_gateway.client.chat.completions.create(**REQUEST, stream=stream)
        )
        async with asyncio.timeout(5):
            run = await openai_gateway.orchestrator.arrivals.get()
            if stream:
                await (await pending).close()
            pending.cancel()
            await run.disconnected.wait()
            await openai_gateway.orchestrator.cancel_received.wait()


async def test_run_without_store_is_deleted(openai_gateway: OpenAIGateway) -> None:
    await openai_gateway.client.chat.completions.create(**REQUEST, store=False)
    assert not openai_gateway.orchestrator.runs


@pytest.mark.parametrize(
    ("model", "policy"), [("hugginggpt", DATA_POLICY_OPEN), ("hugginggpt-local", DATA_POLICY_LOCAL)]
)
async def test_local_controller_applies_policy_local(openai_gateway: OpenAIGateway, model: str, policy: int) -> None:
    await openai_gateway.client.chat.completions.create(**REQUEST | {"model": model})
    assert openai_gateway.last().caller.policy == policy


async def test_models_are_listed_and_returned(openai_gateway: OpenAIGateway) -> None:
    assert [model.id async for model in openai_gateway.client.models.list()] == ["hugginggpt", "hugginggpt-local"]
    assert (await openai_gateway.client.models.retrieve("hugginggpt")).owned_by == "hugginggpt"
    with pytest.raises(openai.NotFoundError):
        await openai_gateway.client.models.retrieve("gpt-4o")
