"""Stored files and conversations over HTTP."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.core.files import FILES, FileService
from protos.hugginggpt.v1.event_pb2 import RunEnded, RunEvent
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common import database as databases
from services.common.errors import NotFound
from tests.support.gateway import GatewayUnderTest, start_gateway

PICTURE = (Path(__file__).parents[1] / "data" / "sign.png").read_bytes()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path) as opened:
        yield opened


async def sent(
    gateway: GatewayUnderTest, name: str = "sign.png", content: bytes = PICTURE, **fields: str
) -> dict[str, Any]:
    response = await gateway.http.post("/v1/files", files={"file": (name, content)}, data=fields)
    assert response.status_code == 200, response.text
    stored: dict[str, Any] = response.json()
    return stored


async def test_file_is_stored_held_listed_and_served(gateway: GatewayUnderTest) -> None:
    stored = await sent(gateway, purpose="vision")
    digest = hashlib.sha256(PICTURE).hexdigest()
    assert stored["artifact"] == {
        "sha256": digest,
        "media_type": "image/png",
        "size_bytes": len(PICTURE),
        "name": "sign.png",
    }
    assert stored["object"] == "file"
    assert stored["purpose"] == "vision"
    assert stored["bytes"] == len(PICTURE)
    assert gateway.orchestrator.holds == {stored["id"]: [digest]}
    path = f"/v1/files/{stored['id']}"
    assert (await gateway.http.get(path)).json() == stored
    whole = await gateway.http.get(f"{path}/content")
    assert whole.content == PICTURE
    assert whole.headers["content-type"] == "image/png"
    part = await gateway.http.get(f"{path}/content", headers={"range": "bytes=1-3"})
    assert part.status_code == 206
    assert part.content == b"PNG"


async def test_openai_client_manages_files(gateway: GatewayUnderTest) -> None:
    base = f"http://127.0.0.1:{gateway.http_port}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
        made = [
            await client.files.create(file=(f"{name}.txt", name.encode()), purpose="user_data")
            for name in ("one", "two", "three")
        ]
        permanent = await client.files.create(
            file=("short.txt", b"short"),
            purpose="user_data",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
        assert permanent.expires_at == permanent.created_at + 3600
        assert [file.filename async for file in client.files.list(limit=2, order="asc")] == [
            "one.txt",
            "two.txt",
            "three.txt",
            "short.txt",
        ]
        assert (await client.files.content(made[1].id)).content == b"two"
        assert (await client.files.retrieve(made[2].id)).filename == "three.txt"
        assert (await client.files.delete(made[0].id)).deleted
        with pytest.raises(openai.NotFoundError, match="there is no file"):
            await client.files.retrieve(made[0].id)
    assert gateway.orchestrator.holds[made[0].id] == []


async def test_files_are_listed_by_purpose(gateway: GatewayUnderTest) -> None:
    await sent(gateway, "a.txt", b"a", purpose="vision")
    await sent(gateway, "b.txt", b"b")
    listed = (await gateway.http.get("/v1/files", params={"purpose": "vision"})).json()
    assert [file["filename"] for file in listed["data"]] == ["a.txt"]
    assert listed["has_more"] is False


@pytest.mark.parametrize(
    ("form", "code", "port"),
    [
        ({"data": {"purpose": "vision"}, "files": {"other": ("a.txt", b"a")}}, "UNKNOWN_FIELD", None),
        ({"files": {"purpose": (None, "vision")}}, "INVALID", "file"),
        ({"files": {"file": ("a.txt", b"")}}, "EMPTY_FILE", None),
        ({"files": {"file": ("a.txt", b"a")}, "data": {"purpose": "A purpose!"}}, "INVALID", "purpose"),
        ({"files": {"file": ("a.txt", b"a")}, "data": {"expires_after[seconds]": "60"}}, None, "expires_after"),
        ({"files": {"file": ("a.txt", b"a")}, "data": {"expires_after[seconds]": "²"}}, None, "expires_after"),
        ({"files": {"file": ("a.txt", b"a")}, "data": {"expires_after[anchor]": "created_at"}}, None, "expires_after"),
        ({"json": {"file": "a"}}, "CONTENT_TYPE", None),
    ],
)
async def test_invalid_file_upload_is_rejected(
    gateway: GatewayUnderTest, form: dict[str, Any], code: str | None, port: str | None
) -> None:
    response = await gateway.http.post("/v1/files", **form)
    body = response.json()
    assert response.status_code in {400, 415}, body
    assert body["remedy"]
    assert code is None or body["code"] == code
    assert body["error"]["param"] == port
    assert not gateway.orchestrator.holds


async def test_expired_file_is_deleted(
    gateway: GatewayUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Holder:
        def __init__(self) -> None:
            self.held: dict[str, list[str]] = {}

        async def hold(self, holder: str, sha256s: list[str]) -> None:
            self.held[holder] = sha256s

    now, holder = 1_000.0, Holder()
    monkeypatch.setattr("gateway.core.files.time.time", lambda: now)
    async with databases.open_database(tmp_path / "files.sqlite", "gateway", (FILES,)) as database:
        files = FileService(database, holder, None)  # type: ignore[arg-type]
        stored = await files.add(await gateway.store.put("default", b"x", media_type="text/plain", name="x"), "p", 60)
        permanent = await files.add(stored.artifact, "p")
        now = 1_061.0
        with pytest.raises(NotFound):
            await files.get(stored.id)
        await files.delete_expired()
        assert holder.held == {stored.id: [], permanent.id: [stored.artifact.sha256]}
        assert (await files.get(permanent.id)).artifact == stored.artifact


async def test_conversation_contains_its_runs(gateway: GatewayUnderTest) -> None:
    first = (await gateway.ask("Read the text in this image, please", headers={"prefer": "wait=5"})).json()["run_id"]
    await gateway.ask("And now aloud", parent_run_id=first, headers={"prefer": "wait=5"})
    other = (await gateway.ask("Another thing", headers={"prefer": "wait=5"})).json()["run_id"]
    listed = (await gateway.http.get("/v1/conversations")).json()
    assert [each["id"] for each in listed["data"]] == [other, first]
    assert listed["data"][1]["title"] == "Read the text in this image, please"
    shown = (await gateway.http.get(f"/v1/conversations/{first}")).json()
    assert [run["spec"]["request"] for run in shown["runs"]] == ["Read the text in this image, please", "And now aloud"]
    deleted = await gateway.http.delete(f"/v1/conversations/{first}")
    assert deleted.json() == {"id": first, "object": "conversation.deleted", "deleted": True}
    assert (await gateway.http.get(f"/v1/conversations/{first}")).status_code == 404
    assert [each["id"] for each in (await gateway.http.get("/v1/conversations")).json()["data"]] == [other]


async def test_active_conversation_cannot_be_deleted(gateway: GatewayUnderTest) -> None:
    gateway.orchestrator.script = ()
    run_id = (await gateway.ask("Wait")).json()["run_id"]
    rejected = await gateway.http.delete(f"/v1/conversations/{run_id}")
    assert rejected.status_code == 409
    assert rejected.json()["code"] == "RUNNING"
    gateway.orchestrator.runs[run_id].send(RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)))
    assert (await gateway.http.delete(f"/v1/conversations/{run_id}")).status_code == 200


async def test_unknown_files_and_conversations_are_not_found(gateway: GatewayUnderTest) -> None:
    paths = ("/v1/files/file_x", "/v1/files/file_x/content", "/v1/conversations/run_x")
    body = await asyncio.gather(*(gateway.http.get(path) for path in paths))
    assert [(each.status_code, each.json()["code"]) for each in body] == [
        (404, "FILE"),
        (404, "FILE"),
        (404, "CONVERSATION"),
    ]
