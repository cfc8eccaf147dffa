"""LLM client with a server that fails."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from protos.hugginggpt.v1.caller_pb2 import (
    DATA_POLICY_LOCAL,
    DATA_POLICY_OPEN,
    DATA_POLICY_UNSPECIFIED,
    Caller,
    DataPolicy,
)
from services.common import call_context
from services.llm.circuit_breaker import COOL_DOWN_SECONDS, FAILURES_TO_OPEN
from services.llm.client import LLM, LLMError, LLMErrorReason, Message
from tests.fakes import ErrorReply, RawReply, ScriptedLLM, ScriptedReply, StalledReply, TextReply, TruncatedReply
from tests.fakes.llm.client import open_llm, settings
from tests.fakes.llm.http_reply import error as error_body
from tests.support.clock import Clock

PROMPT = [Message("user", "what does my-secret-diary.pdf say")]
OK = TextReply("all is well")

TOO_LONG = error_body("This model's maximum context length is 4096 tokens.", code="context_length_exceeded")


async def failure(llm: LLM, timeout_seconds: float | None = None) -> LLMError:
    with pytest.raises(LLMError) as error:
        await llm.complete(PROMPT, timeout_seconds=timeout_seconds)
    assert "diary" not in str(error.value) + error.value.remedy
    return error.value


@pytest.mark.parametrize(
    "fault",
    [
        ErrorReply(429),
        ErrorReply(429, retry_after=0.02),
        ErrorReply(429, retry_after="soon"),
        ErrorReply(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
        ErrorReply(500),
        ErrorReply(503, retry_after=0),
        ErrorReply(503, body="<html>bad gateway</html>"),
        ErrorReply(408),
        TruncatedReply(""),
        RawReply(b""),
        RawReply(b"<html>hello</html>"),
        RawReply(b"data: {]\n\n"),
        TextReply("", finish=None),
    ],
)
async def test_transient_failure_before_first_text_is_retried(fault: ScriptedReply) -> None:
    async with open_llm([fault, fault, OK]) as (llm, server):
        assert (await llm.complete(PROMPT)).text == "all is well"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (ErrorReply(429), LLMErrorReason.RATE_LIMITED),
        (ErrorReply(500), LLMErrorReason.DOWN),
        (TruncatedReply(""), LLMErrorReason.BROKEN),
        (RawReply(b"\xff\xfe\x00"), LLMErrorReason.BROKEN),
        (RawReply(b'data: {"error": {"message": "CUDA out of memory: my-secret-diary"}}\n\n'), LLMErrorReason.BROKEN),
    ],
)
async def test_persistent_failure_raises_after_all_attempts(fault: ScriptedReply, reason: LLMErrorReason) -> None:
    async with open_llm([fault] * 5, attempts=3) as (llm, server):
        error = await failure(llm)
    assert error.reason is reason
    assert error.remedy
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ErrorReply(401, body=error_body("Incorrect API key provided: my-diary")), "refuses the key"),
        (ErrorReply(403), "refuses the key"),
        (ErrorReply(404), "does not exist"),
        (ErrorReply(400, body=TOO_LONG), "too long"),
        (ErrorReply(400), "HTTP status 400"),
        (ErrorReply(413), "HTTP status 413"),
        (TextReply("no", finish="content_filter"), "withheld"),
    ],
)
async def test_refusal_is_not_retried(fault: ScriptedReply, message: str) -> None:
    async with open_llm([fault, OK]) as (llm, server):
        error = await failure(llm)
    assert error.reason is LLMErrorReason.REFUSED
    assert message in str(error)
    assert len(server.requests) == 1


async def test_exhausted_credit_is_not_retried() -> None:
    async with open_llm([ErrorReply(429, body=error_body("no", code="insufficient_quota")), OK]) as (llm, server):
        assert (await failure(llm)).reason is LLMErrorReason.RATE_LIMITED
    assert len(server.requests) == 1


async def test_retry_waits_as_long_as_server_requests() -> None:
    async with open_llm([ErrorReply(429, retry_after=0.3), OK]) as (llm, _):
        usage = (await llm.complete(PROMPT)).usage
    assert usage.elapsed_seconds - usage.busy_seconds >= 0.3


@pytest.mark.parametrize("retry_after", [3600, "Tue, 19 Jan 2038 03:14:07 GMT"])
async def test_no_retry_when_requested_pause_exceeds_timeout(retry_after: float | str) -> None:
    async with open_llm([ErrorReply(429, retry_after=retry_after), OK]) as (llm, server):
        async with asyncio.timeout(5):
            assert (await failure(llm)).reason is LLMErrorReason.RATE_LIMITED
    assert len(server.requests) == 1


async def test_answer_truncated_after_first_text_is_not_retried() -> None:
    async with open_llm([TruncatedReply("it says "), OK]) as (llm, server):
        with pytest.raises(LLMError) as error:
            async with llm.stream(PROMPT) as reply:
                async for _ in reply:
                    pass
        assert error.value.reason is LLMErrorReason.BROKEN
        assert reply.text == "it says "
        assert reply.usage.output_tokens > 0
    assert len(server.requests) == 1


async def test_answer_without_finish_reason_raises() -> None:
    async with open_llm([TextReply("it says", finish=None)]) as (llm, _):
        assert (await failure(llm)).reason is LLMErrorReason.BROKEN


@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_answer_without_text_raises(finish: str) -> None:
    async with open_llm([TextReply("", finish=finish)]) as (llm, _):
        error = await failure(llm)
    assert error.reason is LLMErrorReason.BROKEN
    assert ("LLM_ANSWER_TOKENS" in error.remedy) == (finish == "length")


@pytest.mark.parametrize("text", ["", "it says "])
async def test_idle_timeout_applies_before_and_between_texts(text: str) -> None:
    async with open_llm([StalledReply(text), OK], first_token_seconds=1.0) as (llm, server):
        error = await failure(llm)
        assert error.reason is LLMErrorReason.SLOW
        assert "sent nothing for 1 s" in str(error)
        await asyncio.wait_for(server.disconnects.get(), 20)
    assert len(server.requests) == 1


async def test_slow_tokens_pass_idle_timeout_but_end_at_deadline() -> None:
    slow = TextReply("a b c d e f g h i j k l m n o p", tokens_per_second=10)
    async with open_llm([slow, slow], first_token_seconds=1.0) as (llm, _):
        assert len((await llm.complete(PROMPT)).text) == 31
        error = await failure(llm, timeout_seconds=0.2)
    assert error.reason is LLMErrorReason.SLOW
    assert "did not finish within 0.2 s" in str(error)


async def test_slow_reader_does_not_trigger_idle_timeout() -> None:
    async with open_llm([TextReply("a b c")], first_token_seconds=0.5) as (llm, _), llm.stream(PROMPT) as reply:
        async for _ in reply:
            await asyncio.sleep(0.6)
        assert reply.text == "a b c"


async def test_unreachable_endpoint_raises_down() -> None:
    async with open_llm([OK]) as (llm, server):
        await server.stop()
        error = await failure(llm)
    assert error.reason is LLMErrorReason.DOWN
    assert error.counts_against_endpoint
    assert "127.0.0.1" not in str(error)


async def test_endpoint_that_stops_during_answer_raises_broken() -> None:
    async with open_llm([StalledReply("one ")]) as (llm, server):
        with pytest.raises(LLMError) as error:
            async with llm.stream(PROMPT) as reply:
                await anext(reply)
                await server.stop()
                await anext(reply)
    assert error.value.reason is LLMErrorReason.BROKEN


async def test_every_ended_call_releases_its_slot() -> None:
    faults: list[ScriptedReply] = [
        ErrorReply(500),
        ErrorReply(400),
        TruncatedReply(""),
        TruncatedReply("it "),
        RawReply(b"?"),
        StalledReply(),
        StalledReply("it "),
    ]
    clock = Clock()
    async with ScriptedLLM.serving([*faults, StalledReply(), OK]) as server:
        one_slot = settings(server, concurrency=1, attempts=1)
        async with LLM.open(one_slot, role="planner", clock=clock) as llm:
            for _ in faults:
                with contextlib.suppress(LLMError):
                    await llm.complete(PROMPT, timeout_seconds=1.0)
                clock.now += COOL_DOWN_SECONDS  # the circuit allows the next call, as a probe
            assert len(server.requests) == len(faults)
            while not server.arrivals.empty():
                server.arrivals.get_nowait()
            call = asyncio.create_task(llm.complete(PROMPT))
            await server.arrivals.get()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert (await llm.complete(PROMPT)).text == "all is well"
    assert server.max_active == 1


async def test_consecutive_failures_open_circuit_of_all_roles_until_probe_succeeds() -> None:
    clock = Clock()
    async with ScriptedLLM.serving([ErrorReply(500)] * FAILURES_TO_OPEN + [OK] * 2) as server:
        shared = settings(server, attempts=1)
        async with (
            LLM.open(shared, role="planner", clock=clock) as planner,
            LLM.open(shared, role="responder", clock=clock) as responder,
        ):
            for _ in range(FAILURES_TO_OPEN):
                assert (await failure(planner)).reason is LLMErrorReason.DOWN
            error = await failure(responder)
            assert error.reason is LLMErrorReason.OPEN
            assert "HTTP status 500" in str(error)
            assert len(server.requests) == FAILURES_TO_OPEN
            clock.now += COOL_DOWN_SECONDS
            for llm in (planner, responder):
                assert (await llm.complete(PROMPT)).text == "all is well"


async def test_call_waiting_for_slot_fails_when_circuit_opens() -> None:
    async with open_llm([ErrorReply(500)] * FAILURES_TO_OPEN + [OK] * 9, concurrency=1, attempts=1) as (llm, server):
        errors = await asyncio.gather(*(failure(llm) for _ in range(2 * FAILURES_TO_OPEN)))
    assert [error.reason for error in errors] == [LLMErrorReason.DOWN] * FAILURES_TO_OPEN + [
        LLMErrorReason.OPEN
    ] * FAILURES_TO_OPEN
    assert len(server.requests) == FAILURES_TO_OPEN


async def test_consecutive_invalid_answers_open_circuit() -> None:
    async with open_llm([TextReply("hmm")] * FAILURES_TO_OPEN) as (llm, server):
        for _ in range(FAILURES_TO_OPEN):
            await llm.complete(PROMPT)
            llm.record_answer(valid=False)
        error = await failure(llm)
    assert error.reason is LLMErrorReason.OPEN
    assert "invalid" in str(error)
    assert len(server.requests) == FAILURES_TO_OPEN


@pytest.mark.parametrize("fault", [ErrorReply(400, body=TOO_LONG), StalledReply()])
async def test_failures_caused_by_request_do_not_open_circuit(fault: ScriptedReply) -> None:
    async with open_llm([fault] * FAILURES_TO_OPEN + [OK]) as (llm, _):
        for _ in range(FAILURES_TO_OPEN):
            await failure(llm, timeout_seconds=0.5)
        assert (await llm.complete(PROMPT)).text == "all is well"


async def test_endpoint_state_is_dropped_with_last_client() -> None:
    async with ScriptedLLM.serving([ErrorReply(500)] * FAILURES_TO_OPEN + [OK]) as server:
        async with LLM.open(settings(server, attempts=1), role="planner") as llm:
            for _ in range(FAILURES_TO_OPEN):
                await failure(llm)
        async with LLM.open(settings(server), role="planner") as llm:
            assert (await llm.complete(PROMPT)).text == "all is well"


@hypothesis_settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    policy=some.sampled_from([DATA_POLICY_LOCAL, DATA_POLICY_UNSPECIFIED]),
    texts=some.lists(some.text(), min_size=1, max_size=3),
    streamed=some.booleans(),
)
async def test_restricted_data_is_never_sent_to_external_endpoint(
    policy: DataPolicy.ValueType,
    texts: list[str],
    streamed: bool,
) -> None:
    async with open_llm([OK], internal=False) as (llm, server):
        prompt = [Message("user", text) for text in texts]
        with call_context.use_caller(Caller(tenant="t", policy=policy)), pytest.raises(LLMError) as error:
            if streamed:
                async with llm.stream(prompt):
                    pass
            await llm.complete(prompt)
    assert error.value.reason is LLMErrorReason.POLICY
    assert server.connections == 0


async def test_call_without_caller_is_not_sent_to_external_endpoint() -> None:
    async with open_llm([OK], internal=False) as (llm, server):
        assert (await failure(llm)).reason is LLMErrorReason.POLICY
    assert server.connections == 0


async def test_unrestricted_data_is_sent_to_external_endpoint() -> None:
    async with open_llm([OK], internal=False) as (llm, _):
        with call_context.use_caller(Caller(tenant="t", policy=DATA_POLICY_OPEN)):
            assert (await llm.complete(PROMPT)).text == "all is well"


async def test_redirect_of_internal_endpoint_is_not_followed() -> None:
    async with ScriptedLLM.serving([OK]) as outside:
        location = {"Location": f"{outside.base_url}/chat/completions"}
        async with open_llm([ErrorReply(307, headers=location)]) as (llm, _):
            assert (await failure(llm)).reason is LLMErrorReason.REFUSED
        assert outside.connections == 0


async def test_internal_endpoint_is_not_called_through_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedLLM.serving([OK]) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.base_url.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with open_llm([OK]) as (llm, _):
            assert (await llm.complete(PROMPT)).text == "all is well"
        assert proxy.connections == 0


PIECES = some.sampled_from(
    [
        *(b"data: ", b"data:[DONE]\n\n", b"\n\n", b"event: x\n", b"{}", b"[1]", b"null", b"\xff", b"[" * 3000),
        *(b'{"error": "no"}', b'{"model": 3, "choices": []}', b'{"usage": {"prompt_tokens": {}}}'),
        *(b'{"choices": 3}', b'{"choices": [7]}', b'{"choices": [{"finish_reason": 1}]}'),
        *(b'{"choices": [{"delta": {"content": [1]}}]}', b'{"choices": [{"delta": "x"}], "usage": "much"}'),
        b'{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}',
    ]
)


@hypothesis_settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(some.lists(PIECES | some.binary(max_size=8), max_size=8).map(b"".join))
async def test_arbitrary_response_bytes_raise_only_llm_error(content: bytes) -> None:
    reply = None
    async with open_llm([RawReply(content)], attempts=1) as (llm, _):
        with contextlib.suppress(LLMError):
            reply = await llm.complete(PROMPT)
    assert reply is None or reply.text
