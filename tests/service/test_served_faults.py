"""The served expert with servers that are faulty or restart."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experts.served import oip_messages
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_FAILED, MODEL_STATE_READY
from services.common.errors import RecoveryAction, recovery_action
from tests.fakes import broken_answers
from tests.fakes.llm.http import Request
from tests.fakes.oip import Tensors, tensors
from tests.fakes.web import Answer, Web
from tests.support.expert_host import NOT_SERVING, SERVING
from tests.support.served_expert import ServedExpert, serve_expert

CHAT = "/chat/completions"
TASKS = ["summarization", "text-to-speech", "text-to-image", "feature-extraction"]
PATHS = {
    "summarization": CHAT,
    "text-to-speech": "/audio/speech",
    "text-to-image": "/images/generations",
    "feature-extraction": "/embeddings",
}
SHORT = {"choices": [{"message": {"role": "assistant", "content": "Short."}, "index": 0, "finish_reason": "stop"}]}

Configure = Callable[..., None]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Writes the configuration file."""

    def configure(*servers: dict[str, Any]) -> None:
        path = tmp_path / "served.yaml"
        path.write_text(json.dumps({"servers": servers}))
        monkeypatch.setenv("EXPERT_SERVED", str(path))
        monkeypatch.setenv("BOX_KEY", "strange/key+1")

    return configure


def openai_server(web: Web, **more: Any) -> dict[str, Any]:
    return {
        "name": "box",
        "kind": "openai",
        "address": f"{web.url}/v1",
        "location": "internal",
        "key_variable": "BOX_KEY",
        "timeout_seconds": 1,
        "reply_bytes": broken_answers.LIMIT,
        "models": [{"name": "all", "tasks": TASKS}],
        **more,
    }


def triton(fake: Tensors, **more: Any) -> dict[str, Any]:
    model = {
        "name": "twice",
        "tasks": ["feature-extraction"],
        "inputs": [{"tensor": "TEXT", "port": "text"}],
        "outputs": [{"tensor": "OUT", "port": "embedding", "as": "vector"}],
    }
    return {
        "name": "triton",
        "kind": "oip",
        "address": f"grpc://{fake.address}",
        "location": "internal",
        "models": [model],
        **more,
    }


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web.serving() as web:
        web.answer_with("/v1/models", {"object": "list", "data": [{"id": "all"}]})
        yield web


@pytest.fixture
async def expert(configure: Configure, web: Web, tmp_path: Path) -> AsyncIterator[ServedExpert]:
    configure(openai_server(web))
    async with serve_expert("experts.served", tmp_path) as expert:
        yield expert


@pytest.mark.parametrize("fault", broken_answers.NAMES)
@pytest.mark.parametrize("task", TASKS)
async def test_fault_is_translated_and_the_next_call_succeeds(
    expert: ServedExpert, web: Web, task: str, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with Web.serving() as other_server:
        _, code = broken_answers.answers("")[fault]
        web.answers[PATHS[task]] = lambda _: broken_answers.answers(f"{other_server.url}/stolen")[fault][0]
        error = await expert.call_error(task, text="my secret words")
        assert error.code.name == code
        assert error.remedy
        assert not other_server.connections
    web.answer_with(CHAT, SHORT)
    assert (await expert.call("summarization", text="x"))["text"] == "Short."
    text = f"{error.message} {error.remedy} {''.join(capfd.readouterr())}"
    assert "strange/key+1" not in text
    assert "my secret words" not in text


async def test_key_in_a_servers_error_is_removed(expert: ServedExpert, web: Web) -> None:
    web.answer_with(CHAT, {"error": {"message": "wrong: strange/key+1"}}, status=400)
    assert "strange" not in (await expert.call_error("summarization", text="x")).message
    assert web.requests[-1].headers["authorization"] == "Bearer strange/key+1"


async def test_slowly_trickling_answer_times_out(expert: ServedExpert, web: Web) -> None:
    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.1)  # each pause is shorter than the timeout

    web.answers[CHAT] = lambda _: Answer(drops())
    assert (await expert.call_error("summarization", text="x")).code.name == "DEADLINE_EXCEEDED"


async def test_cancelled_call_ends_its_http_request(configure: Configure, web: Web, tmp_path: Path) -> None:
    async def never(_: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    configure(openai_server(web, timeout_seconds=60))
    web.answers[CHAT] = never
    async with serve_expert("experts.served", tmp_path) as expert:
        call = asyncio.ensure_future(expert.call("summarization", text="x"))
        while CHAT not in (await web.arrived.get()).path:
            pass
        call.cancel()
        async with asyncio.timeout(5):
            assert CHAT in (await web.disconnects.get()).path


async def test_cancelled_call_ends_its_grpc_call(configure: Configure, tmp_path: Path) -> None:
    async with tensors() as fake:
        fake.models, fake.holds = {"twice": lambda _: {}}, True
        configure(triton(fake))
        async with serve_expert("experts.served", tmp_path) as expert:
            call = asyncio.ensure_future(expert.call("feature-extraction", text="x"))
            async with asyncio.timeout(5):
                await fake.entered.wait()
                call.cancel()
                await fake.cancelled.wait()


def tensor(raw: bytes = b"\0" * 8, *, name: str = "OUT", datatype: str = "FP32", shape: Sequence[int] = (2,)) -> bytes:
    reply = oip_messages.ModelInferResponse(raw_output_contents=[raw] if raw else [])
    reply.outputs.add(name=name, datatype=datatype, shape=shape)
    content: bytes = reply.SerializeToString()
    return content


MALFORMED_REPLIES = {
    "nothing": b"",
    "no protobuf": b"<html>",
    "another name": tensor(name="SCORES"),
    "an unknown type": tensor(datatype="BF16"),
    "too few bytes": tensor(b"\0" * 7),
    "another shape": tensor(shape=(3,)),
    "a huge shape": tensor(shape=(2**40, 2**40)),
    "no content": tensor(b""),
    "a text cut off": tensor(b"\xff\xff\0\0cut", datatype="BYTES"),
    "a text that is none": tensor(b"\1\0\0\0\xff", datatype="BYTES"),
    "no number": tensor(np.array([np.nan, 1], dtype=np.float32).tobytes()),
}


@pytest.mark.parametrize("fault", MALFORMED_REPLIES)
async def test_malformed_tensor_is_an_error(configure: Configure, tmp_path: Path, fault: str) -> None:
    async with tensors() as fake:
        fake.reply = MALFORMED_REPLIES[fault]
        configure(triton(fake))
        async with serve_expert("experts.served", tmp_path) as expert:
            error = await expert.call_error("feature-extraction", text="my secret words")
            assert recovery_action(error) is RecoveryAction.NEXT_CANDIDATE
            assert error.remedy
            assert "my secret words" not in error.message


async def test_call_without_a_policy_reaches_no_external_server(configure: Configure, web: Web, tmp_path: Path) -> None:
    async with tensors() as fake:
        configure(openai_server(web, location="external"), triton(fake, location="external"))
        async with serve_expert("experts.served", tmp_path) as expert:
            requests_before = len(web.requests)
            for model in ("box/all", "triton/twice"):
                assert (await expert.refusal(task="feature-extraction", model=model)).reason == "POLICY"
            assert len(web.requests) == requests_before
            assert fake.calls == []


async def test_tensor_reply_has_a_size_limit(configure: Configure, tmp_path: Path) -> None:
    async with tensors() as fake:
        fake.models = {"twice": lambda _: {"OUT": np.zeros((1, 4096), dtype=np.float32)}}
        configure(triton(fake, reply_bytes=4096))
        async with serve_expert("experts.served", tmp_path) as expert:
            error = await expert.call_error("feature-extraction", text="x")
            assert error.code.name == "DATA_LOSS"
            assert "more than 4,096 bytes" in error.message


async def test_expert_is_ready_while_any_server_answers(
    configure: Configure, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPERT_CHECK_SECONDS", "0.05")
    port = int(web.url.rpartition(":")[2])
    async with tensors() as fake:
        configure(openai_server(web), triton(fake))
        fake.ready = {"twice"}
        async with serve_expert("experts.served", tmp_path) as expert:
            names = ("readiness", "box/all", "triton/twice", "liveness")
            assert await expert.health(*names) == [SERVING] * 4
            await web.stop()
            await expert.until(NOT_SERVING, "box/all")
            assert await expert.health(*names) == [SERVING, NOT_SERVING, SERVING, SERVING]
            fake.ready = set()
            await expert.until(NOT_SERVING, "readiness")
            assert await expert.health(*names) == [NOT_SERVING, NOT_SERVING, NOT_SERVING, SERVING]
            assert {card.state for card in (await expert.describe()).models} == {MODEL_STATE_FAILED}
            await web.start(port)
            await expert.until(SERVING, "readiness")
            assert await expert.health(*names) == [SERVING, SERVING, NOT_SERVING, SERVING]
            assert (await expert.card("summarization")).state == MODEL_STATE_READY


async def test_expert_becomes_ready_when_a_server_starts(
    configure: Configure, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPERT_CHECK_SECONDS", "0.05")
    port = int(web.url.rpartition(":")[2])
    configure(openai_server(web))
    await web.stop()
    async with serve_expert("experts.served", tmp_path) as expert:
        assert await expert.health("startup", "readiness") == [SERVING, NOT_SERVING]
        assert "cannot be reached" in (await expert.card("summarization")).failure
        await web.start(port)
        await expert.until(SERVING, "readiness")


async def test_external_server_is_checked_only_after_a_failed_call(
    configure: Configure, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPERT_CHECK_SECONDS", "0.05")
    port = int(web.url.rpartition(":")[2])
    async with tensors() as fake:
        configure(openai_server(web, location="external"), triton(fake, location="external"))
        async with serve_expert("experts.served", tmp_path) as expert:
            assert await expert.health("readiness", "box/all", "triton/twice") == [SERVING] * 3
            await expert.describe()
            assert web.connections == 0
            assert fake.calls == []
            await web.stop()
            assert (await expert.call_error("summarization", text="x")).code.name == "UNAVAILABLE"
            await expert.until(NOT_SERVING, "box/all")
            await web.start(port)
            await expert.until(SERVING, "box/all")
