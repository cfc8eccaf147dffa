"""OpenAI's client library with a local stack."""

import base64
import json
import re
from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.support.samples import DATA
from tests.system.conftest import LocalStack

SIGN = base64.b64encode((DATA / "sign.png").read_bytes()).decode()
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{SIGN}"}}


@pytest.fixture
async def client(local_stack: LocalStack) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{local_stack.url}/v1", api_key="none", max_retries=0, timeout=80) as client:
        yield client


async def test_chat_completion_reads_an_image_aloud_and_continues(client: AsyncOpenAI, http: httpx.AsyncClient) -> None:
    first: Any = {"role": "user", "content": [{"type": "text", "text": "Read the text in this image aloud"}, PICTURE]}
    stream = await client.chat.completions.create(model="hugginggpt", messages=[first], stream=True)
    deltas = [chunk.choices[0].delta async for chunk in stream]
    answer = "".join(delta.content or "" for delta in deltas)
    thoughts = "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas)
    assert "image-to-text" in thoughts
    assert "text-to-speech" in thoughts
    (link,) = re.findall(r"\]\((http[^)]+/v1/artifacts/[0-9a-f]{64})\)", answer)
    audio = await http.get(link)
    assert audio.status_code == 200
    assert audio.headers["content-type"] == "audio/wav"
    second: Any = {"role": "user", "content": "Transcribe the recording"}
    history: Any = [first, {"role": "assistant", "content": answer}, second]
    completion = await client.chat.completions.create(model="hugginggpt", messages=history)
    extras: Any = (completion.model_extra or {})["hugginggpt"]
    run = (await http.get(f"/v1/runs/{extras['run_id']}")).json()
    assert [each["task"]["task"] for each in run["tasks"]] == ["automatic-speech-recognition"]


class Mood(BaseModel):
    sentiment: Literal["positive", "negative", "neutral"]
    confidence: float


async def test_structured_output_without_llm_is_refused_with_the_reason(client: AsyncOpenAI) -> None:
    response = await client.responses.parse(
        model="hugginggpt", input="What is the sentiment of “We won, and I am so happy!”?", text_format=Mood
    )
    content: Any = response.output[-1]
    assert response.output_parsed is None
    assert "answers are written without an LLM here" in content.content[0].refusal


@pytest.mark.parametrize("name", ["open_webui_retrieval", "librechat_retrieval"])
async def test_question_about_retrieved_passages_is_answered_from_them(client: AsyncOpenAI, name: str) -> None:
    body = json.loads((DATA / "chat_front_ends" / f"{name}.json").read_text())
    completion = await client.chat.completions.create(**body)
    assert "3 September" in (completion.choices[0].message.content or "")


async def test_background_response_can_be_streamed_later(client: AsyncOpenAI) -> None:
    content: Any = [
        {"type": "input_text", "text": "Read the text in this image aloud"},
        {"type": "input_image", "image_url": PICTURE["image_url"]["url"]},  # type: ignore[index]  # as above
    ]
    response = await client.responses.create(
        model="hugginggpt", input=[{"role": "user", "content": content}], background=True
    )
    seen: list[Any] = []
    while not seen or seen[-1].type != "response.completed":
        last = seen[-1].sequence_number if seen else -1
        stream = await client.responses.retrieve(response.id, stream=True, starting_after=last)
        seen.append(await anext(stream))
        await stream.close()
    assert [each.sequence_number for each in seen] == list(range(len(seen)))
    assert seen[-1].response == await client.responses.retrieve(response.id)
    assert "speech.wav" in seen[-1].response.output_text or "/v1/artifacts/" in seen[-1].response.output_text


async def test_unsupported_request_is_answered_with_text(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(
        model="hugginggpt", messages=[{"role": "user", "content": "Fold my laundry"}]
    )
    assert completion.choices[0].message.content
    assert (completion.model_extra or {})["hugginggpt"]["state"] in {"failed", "completed"}
