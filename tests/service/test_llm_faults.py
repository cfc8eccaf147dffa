"""The LLM client before a server that fails."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as some

from protos.hugginggpt.v1.caller_pb2 import (
    DATA_POLICY_LOCAL,
    DATA_POLICY_OPEN,
    DATA_POLICY_UNSPECIFIED,
    Caller,
    DataPolicy,
)
from services.common import call_context
from services.llm.circuit_breaker import COOL_DOWN_SECONDS, FAILURES
from services.llm.client import LLM, Message, Unusable, Why
from tests.fakes import Cuts, Fails, Garbage, Says, ScriptedLLM, Stalls, Turn
from tests.fakes.llm.client import asking, settings
from tests.fakes.llm.http_reply import error as complaint

PROMPT = [Message("user", "what does my-secret-diary.pdf say")]
OK = Says("all is well")

TOO_LONG = complaint("This model's maximum context length is 4096 tokens.", code="context_length_exceeded")


async def failure(llm: LLM, within: float | None = None) -> Unusable:
    with pytest.raises(Unusable) as error:
        await llm.complete(PROMPT, within=within)
    assert "diary" not in str(error.value) + error.value.remedy
    return error.value


@pytest.mark.parametrize(
    "fault",
    [
        Fails(429),
        Fails(429, retry_after=0.02),
        Fails(429, retry_after="soon"),
        Fails(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
        Fails(500),
        Fails(503, retry_after=0),
        Fails(503, body="<html>bad gateway</html>"),
        Fails(408),
        Cuts(""),
        Garbage(b""),
        Garbage(b"<html>hello</html>"),
        Garbage(b"data: {]\n\n"),
        Says("", finish=None),
    ],
)
async def test_what_passes_is_asked_again_before_the_first_text(fault: Turn) -> None:
    async with asking([fault, fault, OK]) as (llm, server):
        assert (await llm.complete(PROMPT)).text == "all is well"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Fails(429), Why.RATE_LIMITED),
        (Fails(500), Why.DOWN),
        (Cuts(""), Why.BROKEN),
        (Garbage(b"\xff\xfe\x00"), Why.BROKEN),
        (Garbage(b'data: {"error": {"message": "CUDA out of memory: my-secret-diary"}}\n\n'), Why.BROKEN),
    ],
)
async def test_what_does_not_pass_ends_after_the_attempts(fault: Turn, why: Why) -> None:
    async with asking([fault] * 5, attempts=3) as (llm, server):
        error = await failure(llm)
    assert error.why is why
    assert error.remedy
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fails(401, body=complaint("Incorrect API key provided: my-diary")), "refuses the key"),
        (Fails(403), "refuses the key"),
        (Fails(404), "is not there"),
        (Fails(400, body=TOO_LONG), "too long"),
        (Fails(400), "HTTP status 400"),
        (Fails(413), "HTTP status 413"),
        (Says("no", finish="content_filter"), "withheld"),
    ],
)
async def test_a_refusal_is_final(fault: Turn, says: str) -> None:
    async with asking([fault, OK]) as (llm, server):
        error = await failure(llm)
    assert error.why is Why.REFUSED
    assert says in str(error)
    assert len(server.requests) == 1


async def test_no_credit_left_is_not_asked_again() -> None:
    async with asking([Fails(429, body=complaint("no", code="insufficient_quota")), OK]) as (llm, server):
        assert (await failure(llm)).why is Why.RATE_LIMITED
    assert len(server.requests) == 1


async def test_a_pause_the_server_asks_for_is_kept() -> None:
    async with asking([Fails(429, retry_after=0.3), OK]) as (llm, _):
        usage = (await llm.complete(PROMPT)).usage
    assert usage.elapsed_seconds - usage.busy_seconds >= 0.3


@pytest.mark.parametrize("retry_after", [3600, "Tue, 19 Jan 2038 03:14:07 GMT"])
async def test_a_pause_longer_than_the_call_may_take_is_not_begun(retry_after: float | str) -> None:
    async with asking([Fails(429, retry_after=retry_after), OK]) as (llm, server):
        async with asyncio.timeout(5):
            assert (await failure(llm)).why is Why.RATE_LIMITED
    assert len(server.requests) == 1


async def test_an_answer_cut_after_text_came_is_broken_and_not_asked_again() -> None:
    async with asking([Cuts("it says "), OK]) as (llm, server):
        with pytest.raises(Unusable) as error:
            async with llm.stream(PROMPT) as reply:
                async for _ in reply:
                    pass
        assert error.value.why is Why.BROKEN
        assert reply.text == "it says "
        assert reply.usage.output_tokens > 0
    assert len(server.requests) == 1


async def test_an_answer_that_ends_without_an_end_is_broken() -> None:
    async with asking([Says("it says", finish=None)]) as (llm, _):
        assert (await failure(llm)).why is Why.BROKEN


@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_an_answer_without_text_is_none(finish: str) -> None:
    async with asking([Says("", finish=finish)]) as (llm, _):
        error = await failure(llm)
    assert error.why is Why.BROKEN
    assert ("LLM_ANSWER_TOKENS" in error.remedy) == (finish == "length")


@pytest.mark.parametrize("text", ["", "it says "])
async def test_silence_before_the_first_text_or_between_two_is_too_slow(text: str) -> None:
    async with asking([Stalls(text), OK], first_token_seconds=0.1) as (llm, server):
        error = await failure(llm)
        assert error.why is Why.SLOW
        assert "said nothing for 0.1 s" in str(error)
        await asyncio.wait_for(server.left.get(), 5)
    assert len(server.requests) == 1


async def test_slow_tokens_are_no_silence_but_end_with_the_time_of_the_call() -> None:
    slow = Says("a b c d e f g h i j k l m n o p", tokens_per_second=20)
    async with asking([slow, slow], first_token_seconds=0.4) as (llm, _):
        assert len((await llm.complete(PROMPT)).text) == 31
        error = await failure(llm, within=0.2)
    assert error.why is Why.SLOW
    assert "did not finish within 0.2 s" in str(error)


async def test_a_reader_that_takes_its_time_is_no_silence_of_the_endpoint() -> None:
    async with asking([Says("a b c")], first_token_seconds=0.5) as (llm, _), llm.stream(PROMPT) as reply:
        async for _ in reply:
            await asyncio.sleep(0.6)
        assert reply.text == "a b c"


async def test_an_endpoint_that_is_down_is_said_to_be() -> None:
    async with asking([OK]) as (llm, server):
        await server.stop()
        error = await failure(llm)
    assert (error.why, error.blames) == (Why.DOWN, True)
    assert "127.0.0.1" not in str(error)


async def test_an_endpoint_that_goes_down_in_the_middle_breaks_the_answer() -> None:
    async with asking([Stalls("one ")]) as (llm, server):
        with pytest.raises(Unusable) as error:
            async with llm.stream(PROMPT) as reply:
                await anext(reply)
                await server.stop()
                await anext(reply)
    assert error.value.why is Why.BROKEN


async def test_no_call_keeps_its_turn_however_it_ends() -> None:
    faults: list[Turn] = [Fails(500), Fails(400), Cuts(""), Cuts("it "), Garbage(b"?"), Stalls(), Stalls("it ")]
    async with asking([*faults, Stalls(), OK], concurrency=1, attempts=1) as (llm, server):
        for _ in faults:
            with contextlib.suppress(Unusable):
                await llm.complete(PROMPT, within=0.2)
            llm._line.known.breaker.succeeded()
        while not server.arrivals.empty():
            server.arrivals.get_nowait()
        call = asyncio.create_task(llm.complete(PROMPT))
        await server.arrivals.get()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (await llm.complete(PROMPT)).text == "all is well"
    assert server.busiest == 1


class Clock:
    """Time as the test sets it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_failures_in_a_row_open_the_breaker_of_all_roles_until_a_probe_succeeds() -> None:
    clock = Clock()
    async with ScriptedLLM.serving([Fails(500)] * FAILURES + [OK] * 2) as server:
        given = settings(server, attempts=1)
        async with (
            LLM.opened(given, role="planner", clock=clock) as planner,
            LLM.opened(given, role="responder", clock=clock) as responder,
        ):
            for _ in range(FAILURES):
                assert (await failure(planner)).why is Why.DOWN
            error = await failure(responder)
            assert error.why is Why.OPEN
            assert "HTTP status 500" in str(error)
            assert len(server.requests) == FAILURES
            clock.now += COOL_DOWN_SECONDS
            for llm in (planner, responder):
                assert (await llm.complete(PROMPT)).text == "all is well"


async def test_who_waits_for_a_turn_when_the_breaker_opens_does_not_take_it() -> None:
    async with asking([Fails(500)] * FAILURES + [OK] * 9, concurrency=1, attempts=1) as (llm, server):
        errors = await asyncio.gather(*(failure(llm) for _ in range(2 * FAILURES)))
    assert [error.why for error in errors] == [Why.DOWN] * FAILURES + [Why.OPEN] * FAILURES
    assert len(server.requests) == FAILURES


async def test_nonsense_in_a_row_opens_the_breaker() -> None:
    async with asking([Says("hmm")] * FAILURES) as (llm, server):
        for _ in range(FAILURES):
            await llm.complete(PROMPT)
            llm.judged(ok=False)
        error = await failure(llm)
    assert error.why is Why.OPEN
    assert "no sense" in str(error)
    assert len(server.requests) == FAILURES


@pytest.mark.parametrize("fault", [Fails(400, body=TOO_LONG), Stalls()])
async def test_what_one_request_is_to_blame_for_opens_nothing(fault: Turn) -> None:
    async with asking([fault] * FAILURES + [OK]) as (llm, _):
        for _ in range(FAILURES):
            await failure(llm, within=0.5)
        assert (await llm.complete(PROMPT)).text == "all is well"


async def test_what_is_known_of_an_endpoint_is_forgotten_with_its_last_client() -> None:
    async with ScriptedLLM.serving([Fails(500)] * FAILURES + [OK]) as server:
        async with LLM.opened(settings(server, attempts=1), role="planner") as llm:
            for _ in range(FAILURES):
                await failure(llm)
        async with LLM.opened(settings(server), role="planner") as llm:
            assert (await llm.complete(PROMPT)).text == "all is well"


@trying(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    policy=some.sampled_from([DATA_POLICY_LOCAL, DATA_POLICY_UNSPECIFIED]),
    texts=some.lists(some.text(), min_size=1, max_size=3),
    streamed=some.booleans(),
)
async def test_what_may_not_leave_the_house_is_never_sent_outside(
    policy: DataPolicy.ValueType,
    texts: list[str],
    streamed: bool,
) -> None:
    async with asking([OK], internal=False) as (llm, server):
        prompt = [Message("user", text) for text in texts]
        with call_context.use_caller(Caller(tenant="t", policy=policy)), pytest.raises(Unusable) as error:
            if streamed:
                async with llm.stream(prompt):
                    pass
            await llm.complete(prompt)
    assert error.value.why is Why.POLICY
    assert server.connections == 0


async def test_nobody_in_particular_sends_nothing_outside() -> None:
    async with asking([OK], internal=False) as (llm, server):
        assert (await failure(llm)).why is Why.POLICY
    assert server.connections == 0


async def test_what_may_leave_the_house_is_sent_outside() -> None:
    async with asking([OK], internal=False) as (llm, _):
        with call_context.use_caller(Caller(tenant="t", policy=DATA_POLICY_OPEN)):
            assert (await llm.complete(PROMPT)).text == "all is well"


async def test_an_endpoint_inside_sends_nobody_elsewhere() -> None:
    async with ScriptedLLM.serving([OK]) as outside:
        elsewhere = {"Location": f"{outside.base_url}/chat/completions"}
        async with asking([Fails(307, headers=elsewhere)]) as (llm, _):
            assert (await failure(llm)).why is Why.REFUSED
        assert outside.connections == 0


async def test_an_endpoint_inside_is_not_reached_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedLLM.serving([OK]) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.base_url.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with asking([OK]) as (llm, _):
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


@trying(max_examples=60, deadline=None, derandomize=True, database=None)
@given(some.lists(PIECES | some.binary(max_size=8), max_size=8).map(b"".join))
async def test_no_bytes_of_a_server_raise_anything_but_unusable(content: bytes) -> None:
    reply = None
    async with asking([Garbage(content)], attempts=1) as (llm, _):
        with contextlib.suppress(Unusable):
            reply = await llm.complete(PROMPT)
    assert reply is None or reply.text
