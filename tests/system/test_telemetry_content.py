"""Telemetry contains no content of requests, inputs, LLM messages or results."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from openai import AsyncOpenAI

from gateway.client import Attachment, HuggingGPT, Item
from tests.fakes import ScriptedLLM
from tests.fakes.collector import Collected, collecting
from tests.fakes.llm.plausible import ANSWER_START, PlausibleScript
from tests.support.mcp_clients import opened_client
from tests.system.conftest import ROOT, LocalStack, eventually
from tests.system.test_llm import serve_local_stack

pytestmark = pytest.mark.slow

SIGN = (ROOT / "tests" / "data" / "sign.png").read_bytes()
REQUEST_TEXT, NAMED, READ, WRITTEN = "zebulon", "quixotic", "wonderful", ANSWER_START
"""Text from requests, file names, images and LLM answers."""

REQUEST = f"Read the text in this image for {REQUEST_TEXT} aloud and tell me whether it sounds happy"
EXPECTED_SPANS = {"POST /v1/runs", "POST /v1/chat/completions", "tools/call ask", "run_batch rapidocr", "chat scripted"}


@pytest.fixture
async def collected() -> AsyncIterator[Collected]:
    async with collecting() as collected:
        yield collected


async def test_spans_metrics_and_logs_contain_no_content(collected: Collected, tmp_path: Path) -> None:
    async with asyncio.timeout(180), ScriptedLLM.serving(PlausibleScript()) as llm:
        settings = {"LLM_INTERNAL": "true", **collected.settings}
        async with serve_local_stack(tmp_path, llm.base_url, **settings) as local_stack:
            await asyncio.to_thread(_run_batch, local_stack)
            await _send_chat_completion(local_stack)
            await _call_over_mcp(local_stack)
            await _send_rejected_request(local_stack)
            await asyncio.to_thread(
                eventually, lambda: {span.name for _, span in collected.complete_spans} >= EXPECTED_SPANS
            )
            while await collected.metrics.get() != ("orchestrator", "runs_ended"):
                pass
            log = local_stack.log.read_text(encoding="utf-8")
    assert _prompt_texts(llm) >= {REQUEST_TEXT, NAMED, READ}
    for sent in (*collected.sent, log.encode()):
        found = [text for text in (REQUEST_TEXT, NAMED, READ, WRITTEN) if text.lower().encode() in sent.lower()]
        assert found == [], sent
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"request", "run ended", "batch ended"} <= {line["event"] for line in lines}
    assert [line for line in lines if not line.keys() >= {"service", "level", "logger", "timestamp"}] == []
    assert [line for line in lines if "run_id" in line and "trace_id" not in line] == []


def _run_batch(local_stack: LocalStack) -> None:
    with HuggingGPT(local_stack.url) as client:
        run = client.ask(REQUEST, [Attachment(f"{NAMED}.png", SIGN)])
        assert READ in (run.answer or ""), run
        pipeline = client.save_pipeline("aloud", run)
        (port,) = pipeline.inputs
        attachments = (
            Attachment(f"{NAMED}-{number}.png", content) for number, content in enumerate((SIGN, SIGN[:200]))
        )
        items = [Item({port.name: file}) for file in attachments]
        batch = client.wait_batch(client.start_batch(items, pipeline=pipeline).batch_id)
        assert batch.counts.completed == 1
        assert batch.counts.failed == 1


async def _send_chat_completion(local_stack: LocalStack) -> None:
    picture = {"url": f"data:image/png;base64,{base64.b64encode(SIGN).decode()}"}
    content = [{"type": "text", "text": REQUEST}, {"type": "image_url", "image_url": picture}]
    messages: Any = [{"role": "user", "content": content}]
    async with AsyncOpenAI(base_url=f"{local_stack.url}/v1", api_key="none", max_retries=0, timeout=80) as client:
        completion = await client.chat.completions.create(model="hugginggpt", messages=messages)
    assert READ in (completion.choices[0].message.content or "")


async def _call_over_mcp(local_stack: LocalStack) -> None:
    async with opened_client(urlsplit(local_stack.url).port or 0) as agent:
        leave = (await agent.call_tool("upload", {"name": f"{NAMED}.png"})).structured_content
        async with httpx.AsyncClient(trust_env=False) as sending:
            file = (await sending.put(leave["url"], content=SIGN)).json()["id"]
        assert not (await agent.call_tool("ask", {"request": REQUEST, "files": [file]})).is_error
        assert (await agent.call_tool("run_task", {"task": NAMED, "arguments": {REQUEST_TEXT: REQUEST_TEXT}})).is_error


async def _send_rejected_request(local_stack: LocalStack) -> None:
    """Errors about a request's content are returned to the caller only."""
    async with httpx.AsyncClient(base_url=local_stack.url, timeout=60, trust_env=False) as client:
        for body in (
            {"request": REQUEST, NAMED: REQUEST_TEXT},
            {"request": REQUEST, "inputs": [{"url": f"http://{REQUEST_TEXT}/"}]},
        ):
            assert (await client.post("/v1/runs", json=body)).is_client_error
        assert (await client.get(f"/v1/artifacts/{NAMED}?{REQUEST_TEXT}={REQUEST_TEXT}")).is_client_error


def _prompt_texts(llm: ScriptedLLM) -> set[str]:
    """Which of the texts were sent to the LLM."""
    prompts = json.dumps(llm.requests).lower()
    return {text for text in (REQUEST_TEXT, NAMED, READ) if text in prompts}
