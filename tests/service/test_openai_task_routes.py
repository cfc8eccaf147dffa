"""Embeddings, transcriptions, speech and images with OpenAI's client library."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL, RUN_MODE_RESULTS, RUN_STATE_INCOMPLETE
from protos.hugginggpt.v1.task_pb2 import CatalogTask
from tests.fakes import ScriptedSelector
from tests.support.openai_clients import (
    PICTURE,
    OpenAIGateway,
    run_ended,
    start_openai_gateway,
    task_planned,
    task_succeeded,
)
from tests.support.samples import DATA

TASKS = ("feature-extraction", "automatic-speech-recognition", "text-to-speech", "text-to-image")


@asynccontextmanager
async def serving(folder: Path, *script: RunEvent, tasks: Sequence[str] = TASKS) -> AsyncIterator[OpenAIGateway]:
    """A gateway whose experts offer the tasks, and whose runs have the scripted events."""
    offered = [CatalogTask(spec=standard_tasks()[name], experts=["a"]) for name in tasks]
    async with start_openai_gateway(folder, (*script, run_ended()), selector=ScriptedSelector(offered)) as gateway:
        yield gateway


def embedded(number: int, vector: list[float]) -> tuple[RunEvent, RunEvent]:
    return (
        task_planned(number, "feature-extraction"),
        task_succeeded(number, embedding=Value(json=json.dumps(vector))),
    )


async def test_each_text_gets_its_embedding(tmp_path: Path) -> None:
    script = (*embedded(1, [0.5, -1.0]), *embedded(2, [0.25, 2.0]))
    async with serving(tmp_path, *script) as gateway:
        reply = await gateway.client.embeddings.create(model="hugginggpt", input=["one", "two"])
        spec = gateway.last().spec
    assert [each.embedding for each in reply.data] == [[0.5, -1.0], [0.25, 2.0]]
    assert [each.index for each in reply.data] == [0, 1]
    assert [each.arguments["text"].value.text for each in spec.plan.tasks] == ["one", "two"]
    assert spec.mode == RUN_MODE_RESULTS
    assert spec.on_disconnect == ON_DISCONNECT_CANCEL


async def test_embeddings_are_sent_as_floats_on_request(tmp_path: Path) -> None:
    async with serving(tmp_path, *embedded(1, [0.1, 0.2])) as gateway:
        reply = await gateway.client.embeddings.create(model="hugginggpt", input="one", encoding_format="float")
    assert reply.data[0].embedding == [0.1, 0.2]


async def test_model_of_the_catalog_is_pinned(tmp_path: Path) -> None:
    async with serving(tmp_path, *embedded(1, [0.1])) as gateway:
        await gateway.client.embeddings.create(model="org/encoder", input="one")
        assert gateway.last().spec.plan.tasks[0].pinned_model == "org/encoder"


async def test_local_controller_keeps_embeddings_inside(tmp_path: Path) -> None:
    async with serving(tmp_path, *embedded(1, [0.1])) as gateway:
        await gateway.client.embeddings.create(model="hugginggpt-local", input="one")
        assert gateway.last().caller.policy == DATA_POLICY_LOCAL


@pytest.mark.parametrize(
    "change", [{"input": []}, {"input": [[1, 2]]}, {"input": " "}, {"dimensions": 3}, {"encoding_format": "hex"}]
)
async def test_invalid_embedding_request_is_rejected(tmp_path: Path, change: dict[str, Any]) -> None:
    async with serving(tmp_path) as gateway:
        with pytest.raises(openai.BadRequestError):
            await gateway.client.embeddings.create(**{"model": "hugginggpt", "input": "x", **change})


SEGMENTS = Value(json='[{"text":"Hello","start":0.5,"end":1.25,"confidence":0.9}]')
HEARD = (
    task_planned(1, "automatic-speech-recognition"),
    task_succeeded(1, text=Value(text="Hello"), segments=SEGMENTS),
)


async def test_recording_is_transcribed(tmp_path: Path) -> None:
    async with serving(tmp_path, *HEARD) as gateway:
        with (DATA / "speech.wav").open("rb") as recording:
            reply = await gateway.client.audio.transcriptions.create(model="hugginggpt", file=recording, language="en")
        (task,) = gateway.last().spec.plan.tasks
    assert reply.text == "Hello"
    assert task.arguments["audio"].value.artifact.media_type == "audio/wav"
    assert json.loads(task.parameters_json) == {"language": "en"}


async def test_transcription_has_segments_on_request(tmp_path: Path) -> None:
    async with serving(tmp_path, *HEARD) as gateway:
        reply = await gateway.client.audio.transcriptions.create(
            model="hugginggpt", file=DATA / "speech.wav", response_format="verbose_json"
        )
    assert reply.duration == 1.25
    assert reply.segments
    assert reply.segments[0].text == "Hello"
    assert reply.segments[0].start == 0.5


async def test_transcription_is_plain_text_on_request(tmp_path: Path) -> None:
    async with serving(tmp_path, *HEARD) as gateway:
        reply: Any = await gateway.client.audio.transcriptions.create(
            model="hugginggpt", file=DATA / "speech.wav", response_format="text"
        )
    assert reply == "Hello\n"


async def test_unsupported_transcription_format_is_rejected(tmp_path: Path) -> None:
    async with serving(tmp_path) as gateway:
        with pytest.raises(openai.BadRequestError, match="response_format"):
            await gateway.client.audio.transcriptions.create(
                model="hugginggpt", file=DATA / "speech.wav", response_format="srt"
            )


async def speech_gateway(gateway: OpenAIGateway) -> None:
    """Scripts runs of the gateway to make speech that is in its store."""
    content = (DATA / "speech.wav").read_bytes()
    made = await gateway.gateway.store.put("default", content, media_type="audio/wav", name="speech.wav")
    spoken = (task_planned(1, "text-to-speech"), task_succeeded(1, audio=Value(artifact=made)))
    gateway.orchestrator.script = [*spoken, run_ended()]


async def test_text_is_spoken(tmp_path: Path) -> None:
    async with serving(tmp_path) as gateway:
        await speech_gateway(gateway)
        reply = await gateway.client.audio.speech.create(model="hugginggpt", voice="alloy", input="Hello", speed=1.5)
        (task,) = gateway.last().spec.plan.tasks
    assert reply.content == (DATA / "speech.wav").read_bytes()
    assert reply.response.headers["content-type"] == "audio/wav"
    assert "voice" in reply.response.headers["x-hugginggpt-warning"]
    assert json.loads(task.parameters_json) == {"speed": 1.5}


async def test_other_speech_formats_are_rejected(tmp_path: Path) -> None:
    async with serving(tmp_path) as gateway:
        with pytest.raises(openai.BadRequestError, match="response_format"):
            await gateway.client.audio.speech.create(
                model="hugginggpt", voice="x", input="Hello", response_format="mp3"
            )


DRAWN = (
    task_planned(1, "text-to-image"),
    task_succeeded(1, image=Value(artifact=PICTURE)),
    task_planned(2, "text-to-image"),
    task_succeeded(2, image=Value(artifact=PICTURE)),
)


async def test_pictures_are_links_by_default(tmp_path: Path) -> None:
    async with serving(tmp_path, *DRAWN) as gateway:
        reply = await gateway.client.images.generate(model="hugginggpt", prompt="A castle", n=2, size="512x256")
        tasks = gateway.last().spec.plan.tasks
    assert reply.data
    assert len(reply.data) == 2
    assert f"/v1/artifacts/{PICTURE.sha256}" in (reply.data[0].url or "")
    assert [json.loads(task.parameters_json) for task in tasks] == [{"height": 256, "width": 512}] * 2


@pytest.mark.parametrize("change", [{"n": 0}, {"n": 11}, {"size": "large"}, {"response_format": "gif"}, {"prompt": ""}])
async def test_invalid_image_request_is_rejected(tmp_path: Path, change: dict[str, Any]) -> None:
    async with serving(tmp_path) as gateway:
        with pytest.raises(openai.BadRequestError):
            await gateway.client.images.generate(**{"model": "hugginggpt", "prompt": "A castle", **change})


async def test_failed_task_is_an_error_with_its_reason(tmp_path: Path) -> None:
    ended = run_ended(state=RUN_STATE_INCOMPLETE, failure=Failure(reason="DEADLINE", message="too late", code=4))
    offered = [CatalogTask(spec=standard_tasks()["text-to-image"], experts=["a"])]
    async with start_openai_gateway(tmp_path, (ended,), selector=ScriptedSelector(offered)) as gateway:
        with pytest.raises(openai.APIStatusError, match="too late") as raised:
            await gateway.client.images.generate(model="hugginggpt", prompt="A castle")
    assert raised.value.status_code == 504


async def test_task_that_no_expert_offers_is_not_found(tmp_path: Path) -> None:
    async with serving(tmp_path, tasks=["summarization"]) as gateway:
        client = gateway.client
        for name, call in (
            ("feature-extraction", client.embeddings.create(model="hugginggpt", input="x")),
            (
                "automatic-speech-recognition",
                client.audio.transcriptions.create(model="hugginggpt", file=DATA / "speech.wav"),
            ),
            ("text-to-speech", client.audio.speech.create(model="hugginggpt", voice="alloy", input="x")),
            ("text-to-image", client.images.generate(model="hugginggpt", prompt="x")),
        ):
            with pytest.raises(openai.NotFoundError, match=f"no expert offers the task {name}"):
                await call
        assert not gateway.orchestrator.runs
