"""Invalid batches are rejected with the cause and not stored."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.orchestrator.settings import Settings
from tests.support.orchestrator import ScriptedPeers
from tests.support.pipeline_gateway import NDJSON, PINNED, PipelineGateway, lines, note, notes, start_pipeline_gateway

NOTE = [note("a")]
WHOLE = {"plan": PINNED, "items": NOTE}
LINES = NDJSON["content-type"]

DOCUMENTS: list[tuple[Any, int, str]] = [
    ([], 400, "INVALID"),
    ({}, 400, "EMPTY"),
    ({"plan": PINNED}, 400, "EMPTY"),
    ({"plan": [], "items": NOTE}, 400, "EMPTY"),
    ({"plan": [{"id": 1, "task": "dance"}], "items": NOTE}, 409, "TASK_UNAVAILABLE"),
    ({"pipeline": {"name": "none"}, "items": NOTE}, 404, "PIPELINE"),
    ({"run_id": "run_1", "items": NOTE}, 404, "RUN"),
    ({"request": " ", "items": NOTE}, 400, "EMPTY"),
    ({**WHOLE, "items": {}}, 400, "INVALID"),
    ({**WHOLE, "request": "x"}, 400, "INVALID"),
    ({**WHOLE, "prompt": "x"}, 400, "UNKNOWN_FIELD"),
    ({**WHOLE, "policy": "secret"}, 400, "INVALID"),
    ({**WHOLE, "max_at_once": -1}, 400, "INVALID"),
    ({**WHOLE, "budget": {"tasks": -1}}, 400, "INVALID"),
    ({**WHOLE, "metadata": {"x": "y" * 200_000}}, 413, "TOO_LARGE"),
    ({**WHOLE, "items": [{"inputs": []}]}, 400, "INVALID"),
    ({**WHOLE, "items": [{"inputs": [{"name": "picture", "text": "x"}]}]}, 400, "INVALID"),
    ({**WHOLE, "items": [{"inputs": [{"name": "note", "text": "x"}] * 2}]}, 400, "INVALID"),
    ({**WHOLE, "items": [{"inputs": [{"name": "note", "text": "x", "url": "https://x"}]}]}, 400, "INVALID"),
    ({**WHOLE, "items": [{"inputs": [{"name": "note", "file_id": 1}]}]}, 400, "INVALID"),
    ({**WHOLE, "items": [note("a", "n" * 1_001)]}, 400, "INVALID"),
    ({**WHOLE, "items": [{"failure": {"message": "m" * 1_001}}]}, 400, "INVALID"),
]
BODIES: list[tuple[bytes, str, int, str]] = [
    (b"", "application/json", 400, "INVALID"),
    (b"{" + b" " * 9_000_000 + b"}", "application/json", 413, "TOO_LARGE"),
    (b"", LINES, 400, "EMPTY"),
    (b"\n \n", LINES, 400, "EMPTY"),
    (b"\xff\n", LINES, 400, "NOT_UTF8"),
    (lines({"plan": PINNED}), LINES, 400, "EMPTY"),
    (lines({"plan": PINNED}, note("a" * 9_000_000)), LINES, 413, "TOO_LARGE"),
    (lines({"pipeline": {"name": "none"}}, *notes(5_000)), LINES, 404, "PIPELINE"),
    (lines(WHOLE), "text/plain", 415, "CONTENT_TYPE"),
    (b"--x--", "multipart/form-data; boundary=x", 415, "CONTENT_TYPE"),
]


@pytest.fixture
async def pipeline_gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[PipelineGateway]:
    async with start_pipeline_gateway(peers, settings, tmp_path) as pipeline_gateway:
        yield pipeline_gateway


async def test_invalid_batch_document_is_rejected(pipeline_gateway: PipelineGateway) -> None:
    for document, status, code in DOCUMENTS:
        rejected = await pipeline_gateway.http.post("/v1/pipeline-batches", json=document)
        assert rejected.status_code == status, (document, rejected.text)
        assert rejected.json()["code"] == code, (document, rejected.text)
        assert rejected.json()["remedy"], document
    assert (await pipeline_gateway.http.get("/v1/pipeline-batches")).json()["data"] == []


@pytest.mark.parametrize(("content", "kind", "status", "code"), BODIES, ids=range(len(BODIES)))
async def test_invalid_batch_body_is_rejected(
    pipeline_gateway: PipelineGateway, content: bytes, kind: str, status: int, code: str
) -> None:
    rejected = await pipeline_gateway.http.post("/v1/pipeline-batches", content=content, headers={"content-type": kind})
    assert rejected.status_code == status, rejected.text
    assert rejected.json()["code"] == code, rejected.text
    assert rejected.json()["remedy"]
    assert (await pipeline_gateway.http.get("/v1/pipeline-batches")).json()["data"] == []


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"failed_only": 1}', b'{"all": true}'])
async def test_invalid_resume_body_is_rejected(pipeline_gateway: PipelineGateway, body: bytes) -> None:
    path = f"/v1/pipeline-batches/{await pipeline_gateway.started(NOTE)}/resume"
    rejected = await pipeline_gateway.http.post(path, content=body)
    assert rejected.status_code == 400
    assert rejected.json()["remedy"] != ""


async def test_invalid_list_parameters_are_rejected(pipeline_gateway: PipelineGateway) -> None:
    path = f"/v1/pipeline-batches/{await pipeline_gateway.started(NOTE)}"
    for there in (
        "/v1/pipeline-batches?state=done",
        "/v1/pipeline-batches?page_size=-1",
        "/v1/pipeline-batches?page_token=x",
        "/v1/pipelines?page_size=1001",
        f"{path}/items?state=done",
        f"{path}/items?after=-1",
        f"{path}/items?page_token=first",
        f"{path}/items?page_token=-1",
        f"{path}/items?page_token=first",
        f"{path}/items?page_token=-1",
        f"{path}/results?format=xml",
        f"{path}/results?state=done",
    ):
        rejected = await pipeline_gateway.http.get(there)
        assert rejected.status_code == 400, (there, rejected.text)
        assert rejected.json()["remedy"] != "", (there, rejected.text)
