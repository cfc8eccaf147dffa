import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from experts.host.conversion import convert_outputs, fetch_inputs, output_ports, store_outputs
from experts.host.handler import Media
from experts.host.input_validation import MAX_VALUES, InputValidator
from protos.hugginggpt.v1.artifact_pb2 import (
    MODALITY_AUDIO,
    MODALITY_IMAGE,
    MODALITY_JSON,
    MODALITY_TABLE,
    MODALITY_TEXT,
    MODALITY_VIDEO,
    Artifact,
    Value,
    ValueList,
)
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common.artifacts import INLINE_BYTES, ArtifactStore
from services.common.errors import CorruptData, InvalidRequest, ModelFailed, NotFound, ServiceError

SPEC = TaskSpec(
    name="everything",
    inputs=[
        Port(name="text", modality=MODALITY_TEXT, required=True),
        Port(name="image", modality=MODALITY_IMAGE),
        Port(name="audio", modality=MODALITY_AUDIO),
        Port(name="video", modality=MODALITY_VIDEO),
        Port(name="table", modality=MODALITY_TABLE),
        Port(name="data", modality=MODALITY_JSON),
        Port(name="texts", modality=MODALITY_TEXT, many=True),
    ],
    outputs=[
        Port(name="text", modality=MODALITY_TEXT, required=True),
        Port(name="data", modality=MODALITY_JSON),
        Port(name="image", modality=MODALITY_IMAGE),
    ],
)
TEXT = Value(text="hello")
DIGEST = "0" * 64


def file(media_type: str, size: int = 1) -> Value:
    return Value(artifact=Artifact(sha256=DIGEST, media_type=media_type, size_bytes=size, name="file"))


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore.open(tmp_path.as_uri())


async def read(
    store: ArtifactStore, inputs: Mapping[str, Value], lists: Mapping[str, Sequence[Value]] | None = None
) -> Mapping[str, Any]:
    request = InferRequest(
        inputs={"text": TEXT, **inputs}, lists={key: ValueList(values=values) for key, values in (lists or {}).items()}
    )
    arguments = InputValidator(SPEC).read(request, max_bytes=10**6)
    return (await fetch_inputs(arguments, store, "default"))()


# ---------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    ("port", "value", "plain"),
    [
        ("text", Value(text=" a\n"), " a\n"),
        ("data", Value(json='{"a":[1,2.5,null]}'), {"a": [1, 2.5, None]}),
        ("data", Value(json="0"), 0),
        ("table", Value(json="[]"), Media(b"[]", "application/json", "table.json")),
    ],
)
async def test_inline_value_is_converted_to_python(
    store: ArtifactStore, port: str, value: Value, plain: object
) -> None:
    assert (await read(store, {port: value}))[port] == plain


@pytest.mark.parametrize(
    ("port", "media_type", "content", "plain"),
    [
        ("text", "text/plain", "gr\u00fc\u00df".encode(), "gr\u00fc\u00df"),
        ("text", "text/markdown", b"\xef\xbb\xbfmarked", "marked"),
        ("text", "application/json", b"{}", "{}"),
        ("data", "application/json", b'{"a":1}', {"a": 1}),
        ("image", "image/png", b"\x89PNG", Media(b"\x89PNG", "image/png", "x")),
        ("image", "application/pdf", b"%PDF", Media(b"%PDF", "application/pdf", "x")),
        ("audio", "audio/wav", b"RIFF", Media(b"RIFF", "audio/wav", "x")),
        ("video", "video/mp4", b"ftyp", Media(b"ftyp", "video/mp4", "x")),
        ("table", "text/csv", b"a,b", Media(b"a,b", "text/csv", "x")),
    ],
)
async def test_artifact_is_converted_to_python(
    store: ArtifactStore, port: str, media_type: str, content: bytes, plain: object
) -> None:
    artifact = await store.put("default", content, media_type=media_type, name="x")
    assert (await read(store, {port: Value(artifact=artifact)}))[port] == plain


async def test_empty_file_is_refused_with_its_port(store: ArtifactStore) -> None:
    artifact = await store.put("default", b"", media_type="image/png", name="x")
    with pytest.raises(InvalidRequest, match="file for input image is empty") as caught:
        await read(store, {"image": Value(artifact=artifact)})
    assert caught.value.port == "image"


async def test_file_larger_than_stated_is_refused_with_its_port(store: ArtifactStore) -> None:
    artifact = await store.put("default", b"x" * 100, media_type="image/png", name="x")
    artifact.size_bytes = 1
    arguments = InputValidator(SPEC).read(
        InferRequest(inputs={"text": TEXT, "image": Value(artifact=artifact)}), max_bytes=50
    )
    with pytest.raises(InvalidRequest, match="100 bytes in total") as caught:
        await fetch_inputs(arguments, store, "default", max_bytes=50)
    assert caught.value.port == "image"
    assert caught.value.reason == "TOO_LARGE"


async def test_port_with_many_values_gets_a_list(store: ArtifactStore) -> None:
    artifact = await store.put("default", b"two", media_type="text/plain", name="x")
    plain = await read(store, {}, {"texts": [Value(text="one"), Value(artifact=artifact)]})
    assert plain == {"text": "hello", "texts": ["one", "two"]}


@pytest.mark.parametrize(
    ("inputs", "lists", "port", "message"),
    [
        ({}, {}, "text", "needs the input text"),
        ({"text": TEXT, "sound": TEXT}, {}, "sound", "has no input sound"),
        ({"text": TEXT}, {"sound": [TEXT]}, "sound", "has no input sound"),
        ({"text": TEXT, "texts": TEXT}, {}, "texts", "takes a list"),
        ({}, {"text": [TEXT]}, "text", "takes one value"),
        ({"text": Value()}, {}, "text", "takes text, not nothing"),
        ({"text": Value(json="1")}, {}, "text", "takes text, not JSON"),
        ({"text": file("image/png")}, {}, "text", "takes text, not image/png"),
        ({"text": TEXT, "image": TEXT}, {}, "image", "takes an image, not text"),
        ({"text": TEXT, "image": file("audio/wav")}, {}, "image", "takes an image, not audio/wav"),
        ({"text": TEXT, "image": file("")}, {}, "image", "a file of unknown type"),
        ({"text": TEXT, "audio": file("image/png")}, {}, "audio", "takes audio, not image/png"),
        ({"text": TEXT, "audio": file("application/pdf")}, {}, "audio", "takes audio, not application/pdf"),
        ({"text": TEXT, "video": file("image/png")}, {}, "video", "takes video, not image/png"),
        ({"text": TEXT, "table": file("image/png")}, {}, "table", "takes a table, not image/png"),
        ({"text": TEXT, "table": TEXT}, {}, "table", "takes a table, not text"),
        ({"text": TEXT, "data": TEXT}, {}, "data", "takes JSON, not text"),
        ({"text": TEXT}, {"texts": [TEXT, file("audio/wav")]}, "texts", "takes text, not audio/wav"),
        ({"text": TEXT, "image": file("image/png", 600), "audio": file("audio/wav", 601)}, {}, "audio", "1,206 bytes"),
        ({"text": Value(text="x" * 1001)}, {}, "text", "1,001 bytes in total, the limit is 1,000"),
        ({"text": TEXT}, {"texts": [Value(text="")] * (MAX_VALUES + 1)}, "texts", "has 1001 values"),
    ],
    ids=range(21),
)
def test_invalid_input_is_refused_with_its_port(
    inputs: dict[str, Value], lists: dict[str, list[Value]], port: str, message: str
) -> None:
    request = InferRequest(inputs=inputs, lists={key: ValueList(values=values) for key, values in lists.items()})
    with pytest.raises(InvalidRequest, match=message) as caught:
        InputValidator(SPEC).read(request, max_bytes=1000)
    assert caught.value.port == port
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("port", "value", "message"),
    [
        ("text", Value(text=""), "contains no text"),
        ("text", Value(text=" \n\t"), "contains no text"),
        ("data", Value(json=""), "is not JSON"),
        ("data", Value(json="{"), "is not JSON"),
        ("data", Value(json="[NaN]"), "NaN"),
        ("data", Value(json="[-Infinity]"), "-Infinity"),
        ("data", Value(json="[1e400]"), "1e400"),
        ("data", Value(json="[" * 100_000), "nested too deeply"),
        ("data", Value(json="9" * 5000), "is not JSON"),
    ],
    ids=range(9),
)
async def test_invalid_content_is_refused_with_its_port(
    store: ArtifactStore, port: str, value: Value, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        await read(store, {port: value})
    assert caught.value.port == port


@pytest.mark.parametrize(
    ("port", "media_type", "content", "message"),
    [
        ("text", "text/plain", b"", "contains no text"),
        ("text", "text/plain", b"\xff\xfeh\x00", "not UTF-8"),
        ("data", "application/json", b"\xff", "not UTF-8"),
        ("data", "application/json", b"{", "is not JSON"),
    ],
)
async def test_text_file_with_invalid_content_is_refused(
    store: ArtifactStore, port: str, media_type: str, content: bytes, message: str
) -> None:
    artifact = await store.put("default", content, media_type=media_type, name="x")
    with pytest.raises(InvalidRequest, match=message) as caught:
        await read(store, {port: Value(artifact=artifact)})
    assert caught.value.port == port


async def test_artifact_of_another_tenant_is_not_found(store: ArtifactStore) -> None:
    artifact = await store.put("other", b"theirs", media_type="text/plain", name="x")
    with pytest.raises(NotFound) as caught:
        await read(store, {"text": Value(artifact=artifact)})
    assert caught.value.reason == "ARTIFACT"
    assert caught.value.port == "text"
    assert "set ARTIFACTS_URL of this expert to the deployment's artifact store" in caught.value.remedy


# ---------------------------------------------------------------- outputs


async def test_outputs_are_stored_as_values_and_artifacts(store: ArtifactStore) -> None:
    outputs = {
        "text": "",
        "data": {"b": [1.5, "\u00fc"], "a": None},
        "image": Media(b"\x89PNG", "image/png", "out.png"),
    }
    values = await store_outputs(convert_outputs(output_ports(SPEC), "m", outputs), store, "default")
    assert values["text"] == Value(text="")
    assert values["data"].json == '{"a":null,"b":[1.5,"\u00fc"]}'
    picture = values["image"].artifact
    assert picture.media_type == "image/png"
    assert picture.name == "out.png"
    assert picture.size_bytes == 4
    assert await store.get("default", picture.sha256) == b"\x89PNG"


@pytest.mark.parametrize(
    ("outputs", "port", "content"),
    [
        ({"text": "\u00fc" * (INLINE_BYTES // 2 + 1)}, "text", "\u00fc".encode() * (INLINE_BYTES // 2 + 1)),
        ({"text": "", "data": ["x" * INLINE_BYTES]}, "data", b'["' + b"x" * INLINE_BYTES + b'"]'),
    ],
)
async def test_long_value_becomes_an_artifact_that_can_be_read_again(
    store: ArtifactStore, outputs: dict[str, Any], port: str, content: bytes
) -> None:
    value = (await store_outputs(convert_outputs(output_ports(SPEC), "m", outputs), store, "default"))[port]
    assert await store.get("default", value.artifact.sha256) == content
    request = InferRequest(inputs={"text": TEXT, port: value})
    plain = (await fetch_inputs(InputValidator(SPEC).read(request, max_bytes=10**6), store, "default"))()
    assert plain[port] == outputs[port]


async def test_value_at_the_inline_limit_stays_inline(store: ArtifactStore) -> None:
    text = "x" * INLINE_BYTES
    assert await store_outputs(convert_outputs(output_ports(SPEC), "m", {"text": text}), store, "default") == {
        "text": Value(text=text)
    }


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


@pytest.mark.parametrize(
    ("outputs", "kind", "message"),
    [
        ({}, CorruptData, "output text is missing"),
        ({"text": "a", "sound": "b"}, CorruptData, "no output sound"),
        ({"text": 1}, CorruptData, "text is int, not text"),
        ({"text": None}, CorruptData, "text is NoneType, not text"),
        ({"text": Media(b"a", "text/plain", "x")}, CorruptData, "text is text/plain, not text"),
        ({"text": "\ud800"}, CorruptData, "invalid Unicode"),
        ({"text": "a", "data": {1, 2}}, CorruptData, "data is not JSON"),
        ({"text": "a", "data": b"bytes"}, CorruptData, "data is not JSON"),
        ({"text": "a", "data": "\ud800"}, CorruptData, "invalid Unicode"),
        ({"text": "a", "image": b"bytes"}, CorruptData, "image is bytes, not an image"),
        ({"text": "a", "image": Media(b"a", "audio/wav", "x")}, CorruptData, "image is audio/wav, not an image"),
        ({"text": "a", "image": Media(b"", "image/png", "x")}, CorruptData, "image is empty, not an image"),
        ({"text": "a", "data": [math.nan]}, ModelFailed, r"output data\[0\] is nan"),
        ({"text": "a", "data": {"score": math.inf}}, ModelFailed, r"output data\.score is inf"),
        ({"text": "a", "data": [{"box": (1.0, -math.inf)}]}, ModelFailed, r"output data\[0\]\.box\[1\] is -inf"),
        ({"text": "a", "data": CIRCULAR}, ModelFailed, "not JSON with finite numbers"),
    ],
    ids=range(16),
)
def test_outputs_that_violate_the_spec_are_refused(
    outputs: dict[str, Any], kind: type[ServiceError], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        convert_outputs(output_ports(SPEC), "m", outputs)
    assert caught.value.remedy
