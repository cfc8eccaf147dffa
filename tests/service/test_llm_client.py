"""LLM client with a server that answers."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from services.llm.client import LLM, LLMError, LLMErrorReason, Message, Schema, Usage
from tests.fakes import ScriptedLLM, StalledReply, TextReply
from tests.fakes.llm.client import open_llm, settings
from tests.fakes.tracing import RecordedTraces

PROMPT = [Message("system", "You plan."), Message("user", "Describe photo-of-my-cat.png")]
SCHEMA = Schema("plan", {"type": "object", "properties": {}, "required": [], "additionalProperties": False})


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


async def test_text_is_streamed_before_answer_is_complete() -> None:
    async with open_llm([StalledReply("one two ")]) as (llm, server), llm.stream(PROMPT) as reply:
        assert [await anext(reply), await anext(reply)] == ["one ", "two "]
        assert reply.text == "one two "
        assert not server.released.is_set()
        server.released.set()
        assert [piece async for piece in reply] == []


async def test_complete_answer_has_usage_and_cost() -> None:
    prices = {"m": {"input": 2.0, "output": 10.0}}
    async with open_llm([TextReply("three short words")], prices=prices) as (llm, _):
        reply = await llm.complete(PROMPT)
    assert reply.text == "three short words"
    assert not reply.is_truncated
    usage = reply.usage
    assert usage.input_tokens == 13
    assert usage.output_tokens == 3
    assert usage.cost == pytest.approx((13 * 2 + 3 * 10) / 1e6)
    assert 0 < usage.busy_seconds <= usage.elapsed_seconds
    assert reply.usage == usage


async def test_unreported_tokens_are_estimated_and_unpriced_model_costs_nothing() -> None:
    async with open_llm([TextReply("three short words", usage=False)]) as (llm, _):
        usage = (await llm.complete(PROMPT)).usage
    assert usage.input_tokens > 10
    assert usage.output_tokens >= 3
    assert usage.cost == 0


def test_usages_add_up_and_convert_to_protobuf() -> None:
    total = Usage(1, 2, 0.5, 1.0, 2.0) + Usage(10, 20, 0.25, 0.5, 0.5)
    assert total == Usage(11, 22, 0.75, 1.5, 2.5)
    message = total.to_proto()
    assert message.input_tokens == 11
    assert message.output_tokens == 22
    assert message.cost == 0.75
    assert message.busy.ToTimedelta().total_seconds() == 1.5
    assert message.elapsed.ToTimedelta().total_seconds() == 2.5


async def test_answer_at_token_limit_is_truncated() -> None:
    async with open_llm([TextReply("and then", finish="length")]) as (llm, server):
        reply = await llm.complete(PROMPT, answer_tokens=2)
    assert reply.is_truncated
    assert server.requests[0]["max_tokens"] == 2


async def test_request_uses_settings_and_ignores_openai_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    async with open_llm([TextReply("ok")], api_key="of-settings", temperature=0.2) as (llm, server):
        await llm.complete(PROMPT)
    assert server.keys == ["Bearer of-settings"]
    body = server.requests[0]
    assert body["model"] == "m"
    assert body["temperature"] == 0.2
    assert body["stream"] is True
    assert body["messages"] == [{"role": message.role, "content": message.content} for message in PROMPT]


async def test_schema_is_sent() -> None:
    async with open_llm([TextReply("{}")]) as (llm, server):
        await llm.complete(PROMPT, schema=SCHEMA)
    assert server.requests[0]["response_format"]["json_schema"]["name"] == "plan"
    assert server.requests[0]["response_format"]["json_schema"]["strict"] is True


async def test_refused_schema_costs_no_attempt_and_is_not_sent_again() -> None:
    async with open_llm([TextReply("{}")] * 2, schema=False, attempts=1) as (llm, server):
        assert (await llm.complete(PROMPT, schema=SCHEMA)).text == "{}"
        assert (await llm.complete(PROMPT, schema=SCHEMA)).text == "{}"
    assert ["response_format" in body for body in server.requests] == [True, False, False]


async def test_required_schema_is_not_omitted_when_refused() -> None:
    async with open_llm([TextReply("{}")], schema=False, json_schema="on") as (llm, server):
        with pytest.raises(LLMError) as refused:
            await llm.complete(PROMPT, schema=SCHEMA)
    assert refused.value.reason is LLMErrorReason.REFUSED
    assert len(server.requests) == 1


async def test_schema_is_not_sent_when_switched_off() -> None:
    async with open_llm([TextReply("{}")], json_schema="off") as (llm, server):
        await llm.complete(PROMPT, schema=SCHEMA)
    assert "response_format" not in server.requests[0]


async def test_estimate_is_calibrated_by_reported_tokens() -> None:
    words = " ".join(["word"] * 300)
    async with open_llm([TextReply("ok")] * 40) as (llm, _):
        before = llm.count_tokens(words)
        for _ in range(40):
            await llm.complete([Message("user", words)])
        assert before == pytest.approx(390, abs=1)
        assert llm.count_tokens(words) == pytest.approx(300, rel=0.05)


async def test_server_that_truncates_prompts_sees_only_their_end() -> None:
    def first_word(body: Any) -> TextReply:
        return TextReply(body["messages"][0]["content"].split()[0])

    prompt = [Message("user", "password " + "filler " * 500)]
    async with open_llm(first_word) as (llm, _):
        assert (await llm.complete(prompt)).text == "password"
    async with open_llm(first_word, context=100) as (llm, server):
        assert (await llm.complete(prompt)).text == "filler"
    assert server.requests[0]["messages"][0]["content"].startswith("password")


async def test_leaving_stream_early_closes_connection() -> None:
    async with open_llm([StalledReply("one ")]) as (llm, server):
        async with llm.stream(PROMPT) as reply:
            assert await anext(reply) == "one "
        assert (await asyncio.wait_for(server.disconnects.get(), 5))["model"] == "m"


@pytest.mark.parametrize("text", ["", "one "])
async def test_cancelled_call_closes_connection(text: str) -> None:
    async with open_llm([StalledReply(text)]) as (llm, server):
        call = asyncio.create_task(llm.complete(PROMPT))
        await server.arrivals.get()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(server.disconnects.get(), 5)


async def test_roles_of_one_process_share_concurrency_slots_of_an_endpoint() -> None:
    async with ScriptedLLM.serving([StalledReply()] * 2 + [TextReply("ok")] * 4) as server:
        planner, responder = settings(server, concurrency=2), settings(server, concurrency=2, model="other")
        async with (
            LLM.open(planner, role="planner") as one,
            LLM.open(responder, role="responder") as other,
            asyncio.TaskGroup() as group,
        ):
            calls = [group.create_task(llm.complete(PROMPT)) for llm in (one, other) * 3]
            for _ in range(2):
                await server.arrivals.get()
            for stalled in calls[:2]:
                stalled.cancel()
    assert server.max_active == 2
    assert [call.result().text for call in calls[2:]] == ["ok"] * 4


async def test_waiting_for_slot_ends_at_call_timeout() -> None:
    async with open_llm([StalledReply()], concurrency=1) as (llm, server):
        first = asyncio.create_task(llm.complete(PROMPT))
        await server.arrivals.get()
        with pytest.raises(LLMError, match="busy with other requests") as error:
            await llm.complete(PROMPT, timeout_seconds=0.05)
        assert error.value.reason is LLMErrorReason.SLOW
        assert not error.value.counts_against_endpoint
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    assert len(server.requests) == 1


async def test_models_are_listed() -> None:
    async with open_llm([]) as (llm, server):
        assert await llm.models() == ["scripted"]
    assert server.requests == []


async def test_traces_and_logs_contain_usage_and_no_content(traces: RecordedTraces, logged: list[Any]) -> None:
    async with open_llm([TextReply("it shows a tabby")], prices={"m": {"input": 1, "output": 1}}, api_key="s3cret") as (
        llm,
        _,
    ):
        await llm.complete(PROMPT, schema=SCHEMA)
    (span,) = traces.get_finished_spans()
    assert span.name == "chat m"
    assert span.attributes
    assert span.attributes["gen_ai.operation.name"] == "chat"
    assert span.attributes["gen_ai.request.model"] == "m"
    assert span.attributes["gen_ai.usage.input_tokens"] == 13
    assert span.attributes["gen_ai.usage.output_tokens"] == 4
    recorded = repr((span.attributes, logged))
    assert not [word for word in ("tabby", "cat", "s3cret", "plan.") if word in recorded]
    assert [line["event"] for line in logged] == ["LLM call completed"]


async def test_failed_call_is_traced_with_reason(traces: RecordedTraces) -> None:
    async with open_llm([]) as (llm, _):
        with pytest.raises(LLMError):
            await llm.complete(PROMPT)
    (span,) = traces.get_finished_spans()
    assert dict(span.attributes or {})["error.type"] == "REFUSED"
