"""The served expert over gRPC, with fakes of an OpenAI-compatible server and of Triton."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from PIL import Image

from experts.host.expert import read_expert
from experts.host.handler import Media
from experts.served import oip_messages
from protos.hugginggpt.v1.model_pb2 import (
    MODEL_LOCATION_EXTERNAL,
    MODEL_LOCATION_INTERNAL,
    MODEL_STATE_FAILED,
    MODEL_STATE_READY,
)
from services.common.errors import FailedPrecondition, RecoveryAction, recovery_action
from tests.fakes.llm.http import Request
from tests.fakes.oip import Tensors, tensors
from tests.fakes.web import Answer, Web
from tests.support.expert_host import NOT_SERVING, SERVING
from tests.support.served_expert import serve_expert

Write = Callable[[str], Path]

CHAT_TASKS = ["image-to-text", "visual-question-answering", "document-question-answering", "summarization"]


@pytest.fixture
def write_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the configuration."""

    def write_configuration(text: str) -> Path:
        path = tmp_path / "served.yaml"
        path.write_text(text)
        monkeypatch.setenv("EXPERT_SERVED", str(path))
        return path

    return write_configuration


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web.serving() as web:
        web.answer_with("/v1/models", {"object": "list", "data": [{"id": name} for name in ("eyes", "media")]})
        yield web


@pytest.fixture
async def triton() -> AsyncIterator[Tensors]:
    async with tensors() as fake:
        yield fake


def openai(web: Web, *, location: str = "internal", **more: Any) -> str:
    models = [
        {"name": "eyes", "tasks": CHAT_TASKS},
        {
            "name": "media",
            "tasks": [
                "automatic-speech-recognition",
                "text-to-speech",
                "text-to-image",
                "feature-extraction",
                "sentence-similarity",
            ],
        },
    ]
    server = {"name": "box", "kind": "openai", "address": f"{web.url}/v1", "location": location, "models": models}
    return json.dumps({"servers": [{**server, **more}]})


def triton_yaml(fake: Tensors, location: str = "internal") -> str:
    return f"""
servers:
  - name: triton
    kind: oip
    address: grpc://{fake.address}
    location: {location}
    models:
      - name: colours
        version: "3"
        tasks: [image-classification]
        inputs:
          - {{tensor: PIXELS, port: image, as: pixels, datatype: FP32, shape: [1, 3, 4, 4]}}
        outputs:
          - {{tensor: SCORES, port: labels, as: labels, labels: [red, green, blue], softmax: true}}
      - name: echo
        tasks: [text2text-generation]
        inputs:
          - {{tensor: TEXT, port: text}}
          - {{tensor: MOST, parameter: max_new_tokens, as: json, datatype: INT64}}
        outputs:
          - {{tensor: OUT, port: text}}
      - name: twice
        tasks: [feature-extraction]
        inputs: [{{tensor: TEXT, port: text}}]
        outputs: [{{tensor: OUT, port: embedding, as: vector}}]
"""


def chat_reply(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}, "index": 0, "finish_reason": "stop"}]}


def png(colour: str = "red") -> Media:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(buffer, "PNG")
    return Media(buffer.getvalue(), "image/png", "photo.png")


async def test_chat_model_reads_images_and_writes_text(write_configuration: Write, web: Web, tmp_path: Path) -> None:
    write_configuration(openai(web))
    replies = {"What": "Red.", "Total": '{"answer": "12.50"}'}

    def reply(request: Request) -> Answer:
        user = json.loads(request.body)["messages"][1]["content"]
        prompt = user if isinstance(user, str) else user[-1].get("text", "")
        return Answer(chat_reply(next((text for key, text in replies.items() if key in prompt), "A field.")))

    web.answers["/chat/completions"] = reply
    async with serve_expert("experts.served", tmp_path) as expert:
        assert (await expert.call("image-to-text", image=png()))["text"] == "A field."
        answer = await expert.call("visual-question-answering", image=png(), question="What colour?")
        assert answer == {"text": "Red.", "answers": [{"answer": "Red.", "score": 1.0}]}
        document_answer = await expert.call("document-question-answering", image=png(), question="Total?")
        assert document_answer["details"] == {"answer": "12.50", "score": 1.0, "page": 1}
        assert (await expert.call("summarization", text="Fields."))["text"] == "A field."
    shown = web.bodies("/chat/completions")[0]["messages"][1]["content"][0]["image_url"]["url"]
    assert Image.open(io.BytesIO(base64.b64decode(shown.partition(",")[2]))).getpixel((0, 0)) == (255, 0, 0)


async def test_media_tasks_use_their_own_methods(write_configuration: Write, web: Web, tmp_path: Path) -> None:
    write_configuration(openai(web))
    web.answer_with("/audio/transcriptions", {"text": " hello "})
    web.answer_with("/audio/speech", b"RIFF....WAVE", media_type="audio/wav")
    web.answer_with("/images/generations", {"data": [{"b64_json": base64.b64encode(png("blue").content).decode()}]})

    def embed(request: Request) -> Answer:
        vectors = {"a": [1.0, 0.0], "b": [0.0, 2.0], "c": [3.0, 0.0]}
        data = [{"index": at, "embedding": vectors[text]} for at, text in enumerate(json.loads(request.body)["input"])]
        return Answer({"data": data[::-1], "model": "media", "object": "list"})

    web.answers["/embeddings"] = embed
    async with serve_expert("experts.served", tmp_path) as expert:
        audio = Media(b"RIFF....WAVE", "audio/wav", "a.wav")
        assert (await expert.call("automatic-speech-recognition", audio=audio))["text"] == "hello"
        speech = await expert.call("text-to-speech", text="hello", parameters={"voice": "nova", "speed": 1.5})
        assert speech["audio"] == b"RIFF....WAVE"
        painted = await expert.call("text-to-image", text="sea", parameters={"width": 512, "height": 256, "seed": 4})
        assert Image.open(io.BytesIO(painted["image"])).convert("RGB").getpixel((0, 0)) == (0, 0, 255)
        assert (await expert.call("feature-extraction", text="c"))["embedding"] == [3.0, 0.0]
        similarity = await expert.call("sentence-similarity", text="a", sentences=["b", "c"])
        assert similarity["scores"] == [0.0, 1.0]
        assert similarity["text"] == "c (1.0)"
    spoken, painted = web.bodies("/audio/speech")[0], web.bodies("/images/generations")[0]
    assert spoken["voice"] == "nova"
    assert spoken["speed"] == 1.5
    assert painted["size"] == "512x256"
    assert painted["seed"] == 4
    assert painted["response_format"] == "b64_json"


async def test_ports_are_converted_to_tensors_and_back(
    write_configuration: Write, triton: Tensors, tmp_path: Path
) -> None:
    write_configuration(triton_yaml(triton))
    triton.ready = {"colours", "echo", "twice"}
    triton.models = {
        "colours": lambda tensors: {"SCORES": tensors["PIXELS"].mean((2, 3))},
        "echo": lambda tensors: {"OUT": tensors["TEXT"][: int(tensors["MOST"][0]) if "MOST" in tensors else None]},
        "twice": lambda tensors: {"OUT": np.array([[len(tensors["TEXT"]), 0.5]], dtype=np.float32)},
    }
    async with serve_expert("experts.served", tmp_path) as expert:
        outputs = await expert.call("image-classification", image=png("blue"), parameters={"top_k": 1})
        share = np.exp(1) / (np.exp(1) + 2)
        assert outputs == {"labels": [{"label": "blue", "score": round(float(share), 4)}], "text": "blue"}
        assert (await expert.call("text2text-generation", text="hällo"))["text"] == "hällo"
        truncated = await expert.call("text2text-generation", text="hello", parameters={"max_new_tokens": 2})
        assert truncated["text"] == "he"
        triton.raw = False
        assert (await expert.call("feature-extraction", text="four"))["embedding"] == [4.0, 0.5]
        card = await expert.card("image-classification")
        assert card.id == "triton/colours"
        assert card.revision == "3"
        assert card.location == MODEL_LOCATION_INTERNAL


async def test_local_policy_allows_only_internal_servers(
    write_configuration: Write, web: Web, triton: Tensors, tmp_path: Path
) -> None:
    write_configuration(openai(web))
    web.answer_with("/chat/completions", chat_reply("Short."))
    async with serve_expert("experts.served", tmp_path) as expert:
        assert (await expert.call("summarization", text="x", local=True))["text"] == "Short."
    both = json.loads(openai(web, location="external"))["servers"]
    write_configuration(json.dumps({"servers": both}))
    async with serve_expert("experts.served", tmp_path) as expert:
        assert {card.location for card in (await expert.describe()).models} == {MODEL_LOCATION_EXTERNAL}
        before = len(web.requests)
        for task in ("summarization", "feature-extraction", "text-to-speech"):
            error = await expert.call_error(task, text="x", local=True)
            assert error.code.name == "FAILED_PRECONDITION"
            assert error.reason == "POLICY"
        assert [request.path for request in web.requests[before:]] == []
    write_configuration(triton_yaml(triton, "external"))
    async with serve_expert("experts.served", tmp_path) as expert:
        assert (await expert.call_error("feature-extraction", text="x", local=True)).reason == "POLICY"
        assert triton.calls == []


@pytest.mark.parametrize(
    ("status", "code", "action"),
    [
        (429, "RESOURCE_EXHAUSTED", RecoveryAction.RETRY),
        (504, "DEADLINE_EXCEEDED", RecoveryAction.RETRY),
        (404, "NOT_FOUND", RecoveryAction.NEXT_CANDIDATE),
        (401, "FAILED_PRECONDITION", RecoveryAction.NEXT_CANDIDATE),
        (402, "FAILED_PRECONDITION", RecoveryAction.NEXT_CANDIDATE),
        (400, "INTERNAL", RecoveryAction.NEXT_CANDIDATE),
        (500, "INTERNAL", RecoveryAction.NEXT_CANDIDATE),
        (302, "INTERNAL", RecoveryAction.NEXT_CANDIDATE),
    ],
)
async def test_http_error_of_a_server_is_translated(
    write_configuration: Write, web: Web, tmp_path: Path, *, status: int, code: str, action: RecoveryAction
) -> None:
    write_configuration(openai(web))
    web.answer_with("/chat/completions", {"error": {"message": "no"}}, status=status, headers={"Retry-After": "3"})
    async with serve_expert("experts.served", tmp_path) as expert:
        error = await expert.call_error("summarization", text="x")
        assert error.code.name == code
        assert recovery_action(error) == action
        assert error.remedy
        assert len(web.bodies("/chat/completions")) == 1
        if status == 402:
            assert (await expert.call_error("summarization", text="x")).retry_after
            assert len(web.bodies("/chat/completions")) == 1
            assert (await expert.card("summarization")).state == MODEL_STATE_FAILED


@pytest.mark.parametrize(
    ("failure", "code", "action"),
    [
        (grpc.StatusCode.NOT_FOUND, "NOT_FOUND", RecoveryAction.NEXT_CANDIDATE),
        (grpc.StatusCode.INVALID_ARGUMENT, "INTERNAL", RecoveryAction.NEXT_CANDIDATE),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED", RecoveryAction.RETRY),
        (grpc.StatusCode.UNAUTHENTICATED, "FAILED_PRECONDITION", RecoveryAction.NEXT_CANDIDATE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", RecoveryAction.RETRY),
    ],
)
async def test_grpc_error_of_triton_is_translated(
    write_configuration: Write,
    triton: Tensors,
    tmp_path: Path,
    *,
    failure: grpc.StatusCode,
    code: str,
    action: RecoveryAction,
) -> None:
    write_configuration(triton_yaml(triton))
    triton.fails = failure
    async with serve_expert("experts.served", tmp_path) as expert:
        error = await expert.call_error("feature-extraction", text="x")
        assert error.code.name == code
        assert recovery_action(error) == action
        assert error.remedy


async def test_answer_that_does_not_match_the_configuration_selects_the_next_candidate(
    write_configuration: Write, web: Web, triton: Tensors, tmp_path: Path
) -> None:
    text = triton_yaml(triton) + "  - " + json.dumps(json.loads(openai(web))["servers"][0])
    write_configuration(text)
    triton.models = {
        "colours": lambda _: {"SCORES": np.zeros((1, 2), dtype=np.float32)},
        "twice": lambda _: {"OTHER": np.zeros((1, 2), dtype=np.float32)},
    }
    web.answer_with("/chat/completions", {"choices": []})
    web.answer_with("/audio/speech", b"<html>", media_type="audio/wav")
    async with serve_expert("experts.served", tmp_path) as expert:
        calls: dict[str, dict[str, Any]] = {
            "image-classification": {"image": png()},
            "feature-extraction": {"text": "x"},
            "summarization": {"text": "x"},
            "text-to-speech": {"text": "x"},
        }
        for task, inputs in calls.items():
            assert recovery_action(await expert.call_error(task, **inputs)) is RecoveryAction.NEXT_CANDIDATE


async def test_cards_and_health_follow_the_servers(
    write_configuration: Write, web: Web, triton: Tensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPERT_CHECK_SECONDS", "0.05")
    write_configuration(triton_yaml(triton))
    triton.ready = {"echo"}
    async with serve_expert("experts.served", tmp_path) as expert:
        assert (await expert.card("text2text-generation")).state == MODEL_STATE_READY
        card = await expert.card("image-classification")
        assert card.state == MODEL_STATE_FAILED
        assert "not ready" in card.failure
        assert await expert.health("triton/echo", "triton/colours") == [SERVING, NOT_SERVING]
        triton.ready = {"echo", "colours"}
        await expert.until(SERVING, "triton/colours")
        assert (await expert.card("image-classification")).state == MODEL_STATE_READY
        triton.ready = set()
        await expert.until(NOT_SERVING, "triton/echo")
    write_configuration(openai(web))
    web.answer_with("/v1/models", {"object": "list", "data": [{"id": "eyes"}]})
    async with serve_expert("experts.served", tmp_path) as expert:
        card = await expert.card("text-to-speech")
        assert card.state == MODEL_STATE_FAILED
        assert "it has eyes" in card.failure
        await web.stop()
        await expert.until(NOT_SERVING, "box/eyes")
        assert "cannot be reached" in (await expert.card("summarization")).failure


async def test_server_without_a_model_list_counts_as_ready(
    write_configuration: Write, web: Web, tmp_path: Path
) -> None:
    write_configuration(openai(web))
    del web.answers["/v1/models"]
    async with serve_expert("experts.served", tmp_path) as expert:
        assert (await expert.card("summarization")).state == MODEL_STATE_READY


async def test_server_concurrency_is_limited(write_configuration: Write, web: Web, tmp_path: Path) -> None:
    write_configuration(openai(web, concurrency=2))
    concurrent, max_concurrent, barrier = 0, 0, asyncio.Barrier(2)

    async def reply(_: Request) -> Answer:
        nonlocal concurrent, max_concurrent
        concurrent += 1
        max_concurrent = max(max_concurrent, concurrent)
        await barrier.wait()
        concurrent -= 1
        return Answer(chat_reply("Short."))

    web.answers["/chat/completions"] = reply
    async with serve_expert("experts.served", tmp_path) as expert:
        await asyncio.gather(*(expert.call("summarization", text="x") for _ in range(6)))
    assert max_concurrent == 2


async def test_key_is_read_from_the_named_variable(
    write_configuration: Write, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KEY", "sk-secret")
    write_configuration(openai(web, key_variable="BOX_KEY"))
    web.answer_with("/chat/completions", {"error": {"message": "bad key sk-secret"}}, status=400)
    async with serve_expert("experts.served", tmp_path) as expert:
        error = await expert.call_error("summarization", text="x")
        assert "sk-secret" not in error.message
    assert web.requests[-1].headers["authorization"] == "Bearer sk-secret"


async def test_expert_without_a_file_starts_without_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXPERT_SERVED", raising=False)
    async with serve_expert("experts.served", tmp_path) as expert:
        assert not (await expert.describe()).models


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("servers: [\n  {", 2, "neither YAML nor JSON"),
        ("servers:\n  - name: a\n    kind: ollama\n", 3, "servers.0.kind"),
        ("servers:\n  - name: a\n    kind: openai\n", 2, "Field required"),
        ("servers:\n  - name: a\n    kind: openai\n    adress: x\n", 4, "adress"),
        ("{}", 1, "servers"),
        ("", 0, "servers"),
    ],
)
def test_error_in_the_file_is_reported_with_its_line(
    write_configuration: Write, text: str, line: int, message: str
) -> None:
    write_configuration(text)
    with pytest.raises(FailedPrecondition) as caught:
        read_expert("experts.served")
    assert message in caught.value.message
    assert not line or f"line {line}" in caught.value.message
    assert "served.yaml" in caught.value.remedy


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("port: image", "port: picture", "no port picture"),
        ("tasks: [feature-extraction]", "tasks: [feature-extraction, summarization]", "no port embedding"),
        ("tasks: [image-classification]", "tasks: [seeing]", "not a standard task"),
        ("parameter: max_new_tokens", "parameter: most", "no parameter most"),
        ("as: labels, labels: [red, green, blue]", "as: labels", "labels"),
        ("datatype: INT64", "datatype: BYTES", "BYTES"),
        ("grpc://", "http://", "grpc://"),
        ("name: echo", "name: echo\n        id: triton/colours\n        x: 1", "x"),
    ],
)
def test_tensors_must_match_the_ports(write_configuration: Write, old: str, new: str, message: str) -> None:
    text = triton_yaml(Tensors(address="127.0.0.1:1"))
    assert old in text
    write_configuration(text.replace(old, new))
    with pytest.raises(FailedPrecondition, match=r"EXPERT_SERVED: served\.yaml, line") as caught:
        read_expert("experts.served")
    assert message in caught.value.message


def test_messages_match_the_protocols_wire_format() -> None:
    request = oip_messages.ModelInferRequest(model_name="m", raw_input_contents=[b"x"])
    request.inputs.add(name="t", datatype="FP32", shape=[1])
    assert request.SerializeToString() == b"\n\x01m*\x0c\n\x01t\x12\x04FP32\x1a\x01\x01:\x01x"
