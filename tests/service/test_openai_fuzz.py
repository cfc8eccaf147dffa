"""Every request to OpenAI's routes is answered or rejected without an internal error."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.openai_clients import EVENTS, OpenAIGateway, start_openai_gateway

pytestmark = pytest.mark.slow

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
DATA = st.sampled_from(["data:image/png;base64,", "data:,x", "data:text/plain;base64,eA==", "ftp://x", "http://[", "x"])
TYPES = st.sampled_from(
    ["text", "input_text", "image_url", "input_image", "input_audio", "file", "input_file", "video_url", "smell"]
)
PART = st.fixed_dictionaries(
    {"type": TYPES | JSON},
    optional={
        "text": JSON,
        "image_url": DATA | st.fixed_dictionaries({"url": DATA | JSON}),
        "input_audio": st.fixed_dictionaries({}, optional={"data": JSON, "format": JSON}),
        "file": st.fixed_dictionaries({}, optional={"file_id": JSON, "file_data": DATA, "filename": JSON}),
        "file_id": JSON,
        "file_data": DATA,
        "filename": JSON,
    },
)
ROLE = st.sampled_from(["user", "assistant", "system", "tool"]) | JSON
MESSAGE = st.fixed_dictionaries({"role": ROLE, "content": st.text(max_size=9) | st.lists(PART, max_size=3) | JSON})
SCHEMA = st.recursive(
    st.sampled_from([{}, {"type": "string"}, {"type": "number"}, {"enum": ["positive"]}, {"$ref": "#/$defs/a"}]) | JSON,
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from(["label", "x"]), inner)},
            optional={"required": st.just(["x"]), "$defs": st.fixed_dictionaries({"a": inner})},
        )
        | st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=3)})
    ),
    max_leaves=6,
)
FORM = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "json_object", "json_schema"]) | JSON},
    optional={"schema": SCHEMA, "json_schema": st.fixed_dictionaries({"schema": SCHEMA}), "name": JSON},
)
COMMON = {"store": st.booleans() | JSON, "stream": st.booleans() | JSON, "metadata": JSON, "n": JSON, "stop": JSON}
CHAT = st.fixed_dictionaries(
    {"model": st.just("hugginggpt"), "messages": st.lists(MESSAGE, max_size=3) | JSON},
    optional={**COMMON, "response_format": FORM | JSON, "stream_options": JSON, "tool_choice": JSON},
)
RESPOND = st.fixed_dictionaries(
    {"model": st.just("hugginggpt"), "input": st.text() | st.lists(MESSAGE, max_size=3) | JSON},
    optional={
        **COMMON,
        "text": st.fixed_dictionaries({"format": FORM}) | JSON,
        "background": st.booleans(),
        "instructions": JSON,
        "previous_response_id": st.sampled_from(["resp_1", "x"]) | JSON,
        "conversation": JSON,
    },
)
FORMED = st.fixed_dictionaries(
    {
        "model": st.just("hugginggpt"),
        "messages": st.just([{"role": "user", "content": "x"}]),
        "response_format": st.builds(
            lambda schema: {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}, SCHEMA
        ),
        "stream": st.booleans(),
    }
)
"""Valid requests in which only the schema varies."""

REQUESTS = (
    st.tuples(st.just("/v1/chat/completions"), FORMED)
    | st.tuples(st.just("/v1/chat/completions"), CHAT | JSON)
    | st.tuples(st.just("/v1/responses"), RESPOND | JSON)
)


@pytest.fixture
async def openai_gateway(tmp_path: Path) -> AsyncIterator[OpenAIGateway]:
    async with start_openai_gateway(tmp_path, EVENTS) as openai_gateway:
        yield openai_gateway


async def test_anything_is_answered_or_rejected(openai_gateway: OpenAIGateway) -> None:
    loop = asyncio.get_running_loop()

    @settings(max_examples=250, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(REQUESTS)
    def send(request: tuple[str, Any]) -> None:
        path, body = request
        reply = asyncio.run_coroutine_threadsafe(openai_gateway.gateway.http.post(path, json=body), loop).result(20)
        assert reply.status_code < 500, reply.text
        if reply.status_code >= 400:
            assert reply.json()["error"]["message"]
            assert reply.json()["remedy"]

    await asyncio.to_thread(send)
    assert openai_gateway.orchestrator.arrivals.qsize() > 10


async def test_out_of_range_numbers_are_rejected(openai_gateway: OpenAIGateway) -> None:
    schema = '{"type":"number","minimum":1e999}'
    form = f'{{"type":"json_schema","json_schema":{{"name":"a","schema":{schema}}}}}'
    body = f'{{"model":"hugginggpt","messages":[{{"role":"user","content":"x"}}],"response_format":{form}}}'
    reply = await openai_gateway.gateway.http.post(
        "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
    )
    assert reply.status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "resp_",
        "resp_%00",
        "resp_x?stream=maybe",
        "resp_1?starting_after=-2",
        "x",
        "resp_" + "9" * 3000,
        "resp_%F0%9F%98%80",
    ],
)
async def test_arbitrary_ids_are_handled(openai_gateway: OpenAIGateway, path: str) -> None:
    for method, end in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        base, _, query = path.partition("?")
        reply = await openai_gateway.gateway.http.request(method, f"/v1/responses/{base}{end}?{query}")
        assert 400 <= reply.status_code < 500
