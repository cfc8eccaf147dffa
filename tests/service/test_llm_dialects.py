"""LLM client with servers whose protocol variants differ."""

import json
from typing import Any

import pytest

from services.llm.client import LLM, LLMError, LLMErrorReason, Message, Schema
from tests.fakes import ErrorReply, RawReply, TextReply
from tests.fakes.llm.client import open_llm
from tests.fakes.llm.http_reply import error

PROMPT = [Message("user", "hi")]
PLAN = Schema("plan", {"type": "object"})


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish} | ({} if delta is None else {"delta": delta})
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]} | more


HEL, LO, END = chunk({"content": "hel"}), chunk({"content": "lo"}), chunk({}, "stop")
FILTERED = chunk(model="", content_filter_results={})
COUNT = {"prompt_tokens": 7, "completion_tokens": 2}


def streamed(*events: Any, before: bytes = b"", end: str = "\n") -> RawReply:
    lines = [f"data: {event if isinstance(event, str) else json.dumps(event)}{end * 2}" for event in events]
    return RawReply(before + "".join([*lines, f"data: [DONE]{end * 2}"]).encode())


@pytest.mark.parametrize(
    "answer",
    [
        streamed(HEL, LO, END, end="\r\n"),
        streamed(HEL, LO, END, before=b"\xef\xbb\xbf: keep-alive\n\n"),
        streamed(chunk(choices=[], prompt_filter_results=[]), HEL, FILTERED, LO, END, FILTERED),
        streamed(chunk({"role": "assistant", "content": None}), HEL, LO, END),
        streamed(chunk({"reasoning_content": "hm"}), HEL, LO, END),
        streamed({"choices": HEL["choices"]}, LO, END),
        streamed(HEL, LO, END, chunk(choices=None)),
        streamed(HEL, LO, END, chunk(choices=[5])),
        streamed(HEL, LO, END | {"model": 5}),
        streamed(
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
            chunk({"content": [{"type": "text", "text": "hello"}]}),
            END,
        ),
    ],
)
async def test_answer_is_read_in_every_variant(answer: RawReply) -> None:
    async with open_llm([answer]) as (llm, _):
        assert (await llm.complete(PROMPT)).text == "hello"


@pytest.mark.parametrize(
    "count",
    [
        None,
        {},
        "none",
        {"prompt_tokens": 7, "completion_tokens": None},
        {"prompt_tokens": -7, "completion_tokens": 2},
        {"prompt_tokens": 7, "completion_tokens": 10**30},
    ],
)
async def test_invalid_token_count_does_not_fail_answer(count: Any) -> None:
    async with open_llm([streamed(HEL, LO, END, chunk(choices=[], usage=count))]) as (llm, _):
        reply = await llm.complete(PROMPT)
    assert reply.text == "hello"
    assert 0 < reply.usage.to_proto().output_tokens < 10


async def test_reported_model_name_is_repaired_and_truncated() -> None:
    async with open_llm([streamed(HEL, LO, END | {"model": "\ud800" + "m" * 999})]) as (llm, _):
        assert (await llm.complete(PROMPT)).model == "\ufffd" + "m" * 199


async def test_token_counts_are_read_from_any_chunk() -> None:
    async with open_llm([streamed(HEL, LO, END | {"usage": COUNT})]) as (llm, _):
        assert (await llm.complete(PROMPT)).usage.input_tokens == 7


async def test_surrogates_are_joined_across_chunks_and_lone_ones_replaced() -> None:
    halves = [chunk({"content": half}) for half in ("a \ud83d", "\ude00 b \ude00 c \ud83d")]
    async with open_llm([streamed(*halves, END)]) as (llm, _):
        assert (await llm.complete(PROMPT)).text == "a 😀 b \ufffd c "


async def test_schema_refused_inside_stream_is_omitted() -> None:
    async with open_llm([streamed(error("failed to parse grammar")), TextReply("fine")]) as (llm, server):
        assert (await llm.complete(PROMPT, schema=PLAN)).text == "fine"
    assert ["response_format" in request for request in server.requests] == [True, False]


async def test_prompt_too_long_reported_inside_stream_has_remedy() -> None:
    overflow = "The model is loaded with context length of only 4096 tokens, which is not enough."
    async with open_llm([streamed(error(overflow))]) as (llm, server):
        assert (await refused(llm)).remedy.startswith("set LLM_CONTEXT_TOKENS")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("error", LLMErrorReason.BROKEN),
        ("abort", LLMErrorReason.BROKEN),
        ("content_filter: RECITATION", LLMErrorReason.REFUSED),
    ],
)
async def test_answer_with_error_finish_reason_raises(finish: str, reason: LLMErrorReason) -> None:
    async with open_llm([streamed(HEL, chunk({}, finish))]) as (llm, _):
        with pytest.raises(LLMError) as broken:
            await llm.complete(PROMPT)
    assert broken.value.reason is reason


async def test_no_parameter_is_disabled_by_refusal_that_echoes_request() -> None:
    echo = {
        "detail": [{"msg": "no such user", "input": {"temperature": 0, "response_format": {}, "stream_options": {}}}]
    }
    async with open_llm([*[ErrorReply(422, body=echo)] * 4, TextReply("fine")]) as (llm, server):
        await refused(llm)
        assert (await llm.complete(PROMPT, schema=PLAN)).text == "fine"
    assert {"temperature", "response_format", "stream_options"} <= server.requests[-1].keys()


async def refused(llm: LLM) -> LLMError:
    with pytest.raises(LLMError) as error:
        await llm.complete(PROMPT, schema=PLAN)
    assert error.value.reason is LLMErrorReason.REFUSED
    return error.value
