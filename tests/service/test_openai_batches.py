"""OpenAI's Batch API with OpenAI's client library."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from gateway.openai.batches import CONCURRENT_REQUESTS
from tests.support.api_keys import start_keyed_gateway
from tests.support.gateway import start_gateway
from tests.support.openai_clients import EVENTS, OpenAIGateway, answer_chunk, run_ended, start_openai_gateway

CHAT = "/v1/chat/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}


def chat_line(custom_id: str, **changes: Any) -> dict[str, Any]:
    body = {"model": "hugginggpt", "messages": [{"role": "user", "content": f"Is {custom_id} good news?"}], **changes}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}


async def create(client: AsyncOpenAI, lines: Sequence[Mapping[str, Any]], endpoint: Any = CHAT) -> Any:
    content = "\n".join(map(json.dumps, lines)).encode()
    file = await client.files.create(file=("requests.jsonl", content), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", metadata={"shop": "a"}
    )


async def end(client: AsyncOpenAI, batch_id: str) -> Any:
    """The batch after its end."""
    async with asyncio.timeout(20):
        while (batch := await client.batches.retrieve(batch_id)).status not in ENDED:  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.05)
    return batch


async def output(client: AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id
    return [json.loads(line) for line in (await client.files.content(file_id)).text.splitlines()]


async def test_each_request_of_the_file_is_answered_in_order(tmp_path: Path) -> None:
    async with start_openai_gateway(tmp_path, EVENTS) as gateway:
        created = await create(gateway.client, [chat_line("a"), chat_line("b")])
        batch = await end(gateway.client, created.id)
        lines = await output(gateway.client, batch.output_file_id)
    assert created.status == "validating"
    assert created.metadata == {"shop": "a"}
    assert batch.status == "completed"
    assert batch.request_counts.model_dump() == {"total": 2, "completed": 2, "failed": 0}
    assert batch.error_file_id is None
    assert [line["custom_id"] for line in lines] == ["a", "b"]
    assert lines[0]["response"]["status_code"] == 200
    answer = openai.types.chat.ChatCompletion.model_validate(lines[0]["response"]["body"]).choices[0].message.content
    assert (answer or "").startswith("It is good news.")


async def test_responses_are_served_too(tmp_path: Path) -> None:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"model": "hugginggpt", "input": "x"}}
    async with start_openai_gateway(tmp_path, EVENTS) as gateway:
        batch = await end(gateway.client, (await create(gateway.client, [line], "/v1/responses")).id)
        (found,) = await output(gateway.client, batch.output_file_id)
    assert found["response"]["body"]["object"] == "response"
    assert found["response"]["body"]["status"] == "completed"


async def test_failed_requests_are_in_the_error_file(tmp_path: Path) -> None:
    async with start_openai_gateway(tmp_path, EVENTS) as gateway:
        created = await create(gateway.client, [chat_line("a"), chat_line("b", n=2), chat_line("c", stream=True)])
        batch = await end(gateway.client, created.id)
        errors = await output(gateway.client, batch.error_file_id)
    assert batch.status == "completed"
    assert batch.request_counts.failed == 2
    assert [line["custom_id"] for line in errors] == ["b", "c"]
    assert errors[0]["response"]["status_code"] == 400
    assert errors[0]["response"]["body"]["error"]["param"] == "n"


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([chat_line("a"), chat_line("a")], 2),
        ([{**chat_line("a"), "url": "/v1/embeddings"}], 1),
        ([{**chat_line("a"), "method": "GET"}], 1),
        ([{**chat_line("a"), "body": 3}], 1),
    ],
)
async def test_invalid_file_fails_the_batch_with_its_line(tmp_path: Path, lines: Any, line: int) -> None:
    async with start_openai_gateway(tmp_path, EVENTS) as gateway:
        batch = await end(gateway.client, (await create(gateway.client, lines)).id)
        assert not gateway.orchestrator.runs
    assert batch.status == "failed"
    assert batch.errors.data[0].line == line
    assert batch.errors.data[0].message


async def test_cancelled_batch_names_the_requests_that_were_not_run(tmp_path: Path) -> None:
    async with start_openai_gateway(tmp_path, (answer_chunk("It is"),)) as gateway:
        created = await create(gateway.client, [chat_line(str(number)) for number in range(20)])
        for _ in range(CONCURRENT_REQUESTS):
            await gateway.orchestrator.arrivals.get()
        cancelling = await gateway.client.batches.cancel(created.id)
        end_all(gateway)
        batch = await end(gateway.client, created.id)
        errors = await output(gateway.client, batch.error_file_id)
    assert cancelling.status == "cancelling"
    assert batch.status == "cancelled"
    assert errors[-1]["error"]["code"] == "batch_cancelled"
    assert batch.request_counts.completed == CONCURRENT_REQUESTS
    assert batch.request_counts.failed == 20 - CONCURRENT_REQUESTS


def end_all(gateway: OpenAIGateway) -> None:
    for run in gateway.orchestrator.runs.values():
        if not run.ended:
            run.send(run_ended())


async def test_batch_continues_after_a_restart_without_running_a_request_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.openai.batch_store.LEASE_SECONDS", 1.0)
    async with start_openai_gateway(tmp_path, (answer_chunk("It is"),)) as first:
        created = await create(first.client, [chat_line("a"), chat_line("b")])
        for _ in range(2):
            await first.orchestrator.arrivals.get()
        orchestrator = first.orchestrator
    end_all(first)
    async with start_gateway(tmp_path, orchestrator) as second:
        base = f"http://127.0.0.1:{second.http_port}/v1"
        async with AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
            batch = await end(client, created.id)
    assert batch.status == "completed"
    assert batch.request_counts.completed == 2
    assert len(orchestrator.runs) == 2


async def test_batches_are_listed_newest_first_in_pages(tmp_path: Path) -> None:
    async with start_openai_gateway(tmp_path, EVENTS) as gateway:
        ids = [(await create(gateway.client, [chat_line("a")])).id for _ in range(3)]
        page = await gateway.client.batches.list(limit=2)
        rest = await gateway.client.batches.list(limit=2, after=page.data[-1].id)
    assert [batch.id for batch in [*page.data, *rest.data]] == ids[::-1]
    assert page.has_more
    assert not rest.has_more


async def test_batches_of_other_tenants_are_not_found(tmp_path: Path) -> None:
    async with start_keyed_gateway(tmp_path) as keyed:
        base = f"http://127.0.0.1:{keyed.gateway.http_port}/v1"
        async with (
            AsyncOpenAI(base_url=base, api_key=await keyed.token("a"), max_retries=0) as one,
            AsyncOpenAI(base_url=base, api_key=await keyed.token("b"), max_retries=0) as other,
        ):
            created = await create(one, [chat_line("a")])
            with pytest.raises(openai.NotFoundError):
                await other.batches.retrieve(created.id)
            with pytest.raises(openai.NotFoundError):
                await other.batches.cancel(created.id)
            assert not (await other.batches.list()).data


@pytest.mark.parametrize("change", [{"endpoint": "/v1/completions"}, {"completion_window": "1h"}])
async def test_unsupported_batch_is_rejected(tmp_path: Path, change: dict[str, str]) -> None:
    async with start_openai_gateway(tmp_path, EVENTS) as gateway:
        file = await gateway.client.files.create(file=("a.jsonl", b"{}"), purpose="batch")
        given: Any = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **change}
        with pytest.raises(openai.BadRequestError):
            await gateway.client.batches.create(**given)
