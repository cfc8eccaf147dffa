"""A gateway in front of a real orchestrator with scripted peers, for tests of pipelines and batches over HTTP."""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.gateway import GatewayUnderTest, start_gateway
from tests.support.orchestrator import ScriptedPeers

PLAN = [{"id": 1, "task": "summarization", "arguments": {"text": {"input": "note"}}}]
PINNED = [{**PLAN[0], "model": "model"}]
NDJSON = {"content-type": "application/x-ndjson"}


def note(text: str, name: str = "") -> dict[str, Any]:
    """Returns a batch item with one text input, `note`."""
    return {"name": name or text, "inputs": [{"name": "note", "text": text}]}


def notes(count: int) -> list[dict[str, Any]]:
    return [note(f"note {number}") for number in range(1, count + 1)]


def lines(*documents: Any) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


@dataclass
class PipelineGateway:
    """A gateway and the scripted peers of its orchestrator."""

    gateway: GatewayUnderTest
    peers: ScriptedPeers

    @property
    def http(self) -> httpx.AsyncClient:
        return self.gateway.http

    async def save(self, name: str = "short", **body: Any) -> httpx.Response:
        return await self.http.put(f"/v1/pipelines/{name}", json=body or {"plan": PINNED})

    async def start(self, items: Sequence[Any], **spec: Any) -> httpx.Response:
        return await self.http.post("/v1/pipeline-batches", json={**(spec or {"plan": PINNED}), "items": items})

    async def send(self, documents: Iterable[Any], **headers: str) -> httpx.Response:
        return await self.http.post("/v1/pipeline-batches", content=lines(*documents), headers={**NDJSON, **headers})

    async def started(self, items: Sequence[Any], **spec: Any) -> str:
        """Starts a batch and returns its id."""
        response = await self.start(items, **spec)
        assert response.status_code == 202, response.text
        return str(response.json()["batch_id"])

    async def ended(self, batch_id: str) -> dict[str, Any]:
        """Waits for a batch to end and returns it."""
        batch = {}
        async with self.http.stream("GET", f"/v1/pipeline-batches/{batch_id}/events") as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    batch = json.loads(line.removeprefix("data: "))
        assert batch["end_time"]
        return batch

    async def results(self, batch_id: str, **filters: Any) -> list[dict[str, Any]]:
        response = await self.http.get(f"/v1/pipeline-batches/{batch_id}/results", params=filters)
        assert response.status_code == 200, response.text
        return [json.loads(line) for line in response.text.splitlines()]


@asynccontextmanager
async def start_pipeline_gateway(
    peers: ScriptedPeers, settings: Settings, folder: Path, **given: Any
) -> AsyncIterator[PipelineGateway]:
    """Starts both; further arguments are the gateway's settings."""
    async with serve_orchestrator(settings) as running:
        own = {"orchestrator": f"127.0.0.1:{running.port}", "ARTIFACTS_URL": settings.artifacts_url, **given}
        async with start_gateway(folder, settings=own) as gateway:
            yield PipelineGateway(gateway, peers)
