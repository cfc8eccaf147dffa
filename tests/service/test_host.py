import asyncio
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from experts.host.handler import Inputs, Media, Outputs, Parameters
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value, ValueList
from services.common import errors
from services.common.artifacts import INLINE_BYTES
from tests.support.expert_host import SERVING, Function, Start, loader_of

NOT_THERE = Value(artifact=Artifact(sha256="0" * 64, media_type="image/png", size_bytes=1, name="gone.png"))
NO_DIGEST = Value(artifact=Artifact(sha256="x", media_type="image/png"))
TOO_LARGE = Value(artifact=Artifact(sha256="0" * 64, media_type="image/png", size_bytes=10**12))


async def test_call_returns_outputs_and_usage(start_host: Start) -> None:
    host = await start_host()
    await host.until(SERVING)
    call = host.infer("ab", parameters_json='{"times":2}')
    reply = await call
    trailer = dict(await call.trailing_metadata())
    assert reply.outputs["text"].text == "abab"
    assert reply.revision == "1"
    assert timedelta() < reply.usage.busy.ToTimedelta() <= reply.usage.elapsed.ToTimedelta()
    assert trailer["expert-queue"] == "0"
    assert trailer["expert-loaded"] == "m,other"
    assert int(trailer["expert-free-bytes"]) > 0


async def test_error_has_load_in_its_trailing_metadata(start_host: Start) -> None:
    host = await start_host()
    await host.until(SERVING)
    call = host.infer(task="singing")
    trailer = dict(await call.trailing_metadata())
    assert trailer["expert-queue"] == "0"
    assert trailer["expert-loaded"] == "m,other"
    assert int(trailer["expert-free-bytes"]) > 0


@pytest.mark.parametrize(
    ("request_", "code", "reason", "port"),
    [
        ({"task": "singing"}, "NOT_FOUND", "TASK", ""),
        ({"model": "gone"}, "NOT_FOUND", "MODEL", ""),
        ({"revision": "2"}, "FAILED_PRECONDITION", "REVISION", ""),
        ({"parameters_json": '{"times":4}'}, "INVALID_ARGUMENT", "INVALID", "parameters.times"),
        ({"parameters_json": '{"tone":1}'}, "INVALID_ARGUMENT", "INVALID", "parameters.tone"),
        ({"parameters_json": "{"}, "INVALID_ARGUMENT", "INVALID", "parameters"),
        ({"inputs": {"text": Value(text=" ")}}, "INVALID_ARGUMENT", "INVALID", "text"),
        ({"inputs": {"text": Value()}}, "INVALID_ARGUMENT", "INVALID", "text"),
        ({"inputs": {"sound": Value(text="x")}}, "INVALID_ARGUMENT", "INVALID", "sound"),
        ({"inputs": {"data": Value(json="{")}}, "INVALID_ARGUMENT", "INVALID", "data"),
        ({"inputs": {"image": Value(text="x")}}, "INVALID_ARGUMENT", "INVALID", "image"),
        ({"inputs": {"image": NOT_THERE}}, "NOT_FOUND", "ARTIFACT", "image"),
        ({"inputs": {"image": NO_DIGEST}}, "INVALID_ARGUMENT", "INVALID", "image"),
        ({"lists": {"text": ValueList(values=[Value(text="x")])}}, "INVALID_ARGUMENT", "INVALID", "text"),
        ({"inputs": {"image": TOO_LARGE}}, "INVALID_ARGUMENT", "TOO_LARGE", "image"),
        ({"tenant": "Not A Tenant", "inputs": {"image": NOT_THERE}}, "INVALID_ARGUMENT", "INVALID", "image"),
    ],
    ids=range(16),
)
async def test_invalid_input_is_refused_and_the_next_call_succeeds(
    start_host: Start, request_: dict[str, Any], code: str, reason: str, port: str
) -> None:
    host = await start_host()
    error = await host.refusal(**request_)
    assert error.code.name == code
    assert error.reason == reason
    assert error.port == port
    assert error.remedy
    assert (await host.infer()).outputs["text"].text == "hello"


def raising(error: BaseException) -> Function:
    def function(inputs: Inputs, parameters: Parameters) -> Outputs:
        if inputs["text"] == "poison":
            raise error
        return {"text": inputs["text"]}

    return function


def giving(outputs: Outputs) -> Function:
    return lambda inputs, parameters: outputs if inputs["text"] == "poison" else {"text": inputs["text"]}


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        (raising(ValueError("poison")), "INTERNAL", "MODEL_FAILED"),
        (raising(SystemExit(3)), "INTERNAL", "MODEL_FAILED"),
        (raising(StopIteration("poison")), "INTERNAL", "MODEL_FAILED"),
        (raising(asyncio.CancelledError()), "INTERNAL", "MODEL_FAILED"),
        (raising(TimeoutError("poison")), "INTERNAL", "MODEL_FAILED"),
        (raising(MemoryError()), "RESOURCE_EXHAUSTED", "OUT_OF_MEMORY"),
        (raising(errors.InvalidRequest("too dark", remedy="x", port="image")), "INVALID_ARGUMENT", "INVALID"),
        (giving({}), "DATA_LOSS", "CORRUPT"),
        (giving({"text": "a", "tune": "b"}), "DATA_LOSS", "CORRUPT"),
        (giving({"text": b"a"}), "DATA_LOSS", "CORRUPT"),
        (giving({"text": "a", "data": float("nan")}), "INTERNAL", "MODEL_FAILED"),
    ],
    ids=range(11),
)
async def test_error_of_one_call_does_not_affect_others(
    start_host: Start, function: Function, code: str, reason: str
) -> None:
    host = await start_host(loader_of(function))
    error, *others = await asyncio.gather(host.refusal(text="poison"), *(host.infer(f"{n}") for n in range(4)))
    assert error.code.name == code
    assert error.reason == reason
    assert "poison" not in error.message
    assert error.remedy
    assert [reply.outputs["text"].text for reply in others] == ["0", "1", "2", "3"]


async def test_model_error_that_quotes_the_input_is_not_logged(start_host: Start) -> None:
    host = await start_host(loader_of(raising(ValueError("could not parse 'poison'"))))
    with capture_logs() as logs:
        await host.refusal(text="poison")
    (entry,) = [entry for entry in logs if entry["event"] == "model failed"]
    assert entry["model"] == "m"
    assert entry["error"] == "ValueError"
    assert "could not parse" not in str(logs)


async def test_long_result_is_stored_as_an_artifact_of_the_caller(start_host: Start) -> None:
    text = "x" * (INLINE_BYTES + 1)
    host = await start_host(loader_of(lambda inputs, parameters: {"text": text}))
    artifact = (await host.infer(tenant="acme")).outputs["text"].artifact
    assert artifact.media_type == "text/plain"
    assert artifact.size_bytes == len(text)
    assert await host.store.get("acme", artifact.sha256) == text.encode()


async def test_media_are_read_from_and_written_to_the_store(start_host: Start) -> None:
    def flipped(inputs: Inputs, parameters: Parameters) -> Outputs:
        image: Media = inputs["image"]
        return {"text": image.name, "image": Media(image.content[::-1], image.media_type, "flipped.png")}

    host = await start_host(loader_of(flipped))
    image = await host.store.put("acme", b"abc", media_type="image/png", name="in.png")
    reply = await host.infer(tenant="acme", inputs={"image": Value(artifact=image)})
    assert reply.outputs["text"].text == "in.png"
    assert reply.outputs["image"].artifact.name == "flipped.png"
    assert await host.store.get("acme", reply.outputs["image"].artifact.sha256) == b"cba"


async def test_artifact_of_another_tenant_is_not_found(start_host: Start) -> None:
    host = await start_host()
    image = await host.store.put("acme", b"abc", media_type="image/png", name="in.png")
    error = await host.refusal(tenant="rival", inputs={"image": Value(artifact=image)})
    assert error.code.name == "NOT_FOUND"
    assert error.reason == "ARTIFACT"


async def test_region_is_copied_to_the_card_of_every_local_model(start_host: Start) -> None:
    reported = await (await start_host(region="eu-central-1")).describe()
    assert {card.id: card.region for card in reported.models} == {"m": "eu-central-1", "other": "eu-central-1"}
