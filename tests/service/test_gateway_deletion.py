"""Deleted objects are unreadable, and other tenants learn nothing from deletion."""

from collections.abc import AsyncIterator, Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import obstore
import pytest

from services.common.artifacts.upload import write_files
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.api_keys import KeyedGateway, bearer, start_keyed_gateway
from tests.support.gateway import GatewayUnderTest, start_gateway
from tests.support.orchestrator import END, ScriptedPeers, task

ACCESSES = ("head_async", "get_async", "put_async", "get_range_async")
"""Functions of obstore; small artifacts in a folder are read and written without it."""


@pytest.fixture
async def gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    peers.candidates[0].candidate.revision = "1"
    peers.plan(task(1), END)
    async with serve_orchestrator(settings) as running:
        stored = {"orchestrator": f"127.0.0.1:{running.port}", "ARTIFACTS_URL": settings.artifacts_url}
        async with start_gateway(tmp_path, settings=stored) as opened:
            yield opened


async def ended(gateway: GatewayUnderTest, **fields: Any) -> dict[str, Any]:
    run: dict[str, Any] = (await gateway.ask("do it", **fields, headers={"prefer": "wait=9"})).json()
    assert run["state"] == "completed", run
    return run


async def test_deleted_run_is_not_readable(gateway: GatewayUnderTest) -> None:
    run = await ended(gateway)
    path = f"/v1/runs/{run['run_id']}"
    assert (await ended(gateway))["tasks"][0]["state"] == "reused"
    assert (await gateway.http.delete(path)).status_code == 204
    for below in ("", "/events", "/record", f"/verifications/{run['run_id']}"):
        assert (await gateway.http.get(path + below)).status_code == 404
    assert (await gateway.http.get(f"/v1/conversations/{run['run_id']}")).status_code == 404
    assert run["run_id"] not in (await gateway.http.get("/v1/runs")).text
    assert (await ended(gateway))["tasks"][0]["state"] == "succeeded"  # the deleted result was not reused


async def test_deleting_a_conversation_deletes_all_runs(gateway: GatewayUnderTest) -> None:
    first = await ended(gateway)
    second = await ended(gateway, parent_run_id=first["run_id"])
    assert (await gateway.http.delete(f"/v1/conversations/{first['run_id']}")).status_code == 200
    for run in (first, second):
        assert (await gateway.http.get(f"/v1/runs/{run['run_id']}")).status_code == 404
    assert (await gateway.http.get("/v1/conversations")).json()["data"] == []


@pytest.fixture
async def keyed_gateway(tmp_path: Path) -> AsyncIterator[KeyedGateway]:
    async with start_keyed_gateway(tmp_path) as opened:
        yield opened


async def test_deleted_file_releases_its_artifact(keyed_gateway: KeyedGateway) -> None:
    headers = bearer(await keyed_gateway.token("a"))
    stored = (await sent(keyed_gateway.gateway, headers, b"of a")).json()
    path = f"/v1/files/{stored['id']}"
    assert (await keyed_gateway.gateway.http.delete(path, headers=headers)).status_code == 200
    for below in ("", "/content"):
        assert (await keyed_gateway.gateway.http.get(path + below, headers=headers)).status_code == 404
    assert keyed_gateway.gateway.orchestrator.holds[stored["id"]] == []


async def test_existence_of_other_tenants_artifacts_is_hidden(
    keyed_gateway: KeyedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Responses and store accesses are the same for existing and missing artifacts, and so is the time they take."""
    await sent(keyed_gateway.gateway, bearer(await keyed_gateway.token("a")), b"known")
    headers, responses, looked = (
        bearer(await keyed_gateway.token("b")),
        dict[bytes, list[Any]](),
        list[tuple[str, str]](),
    )
    for name in ACCESSES:
        monkeypatch.setattr(obstore, name, _noting(getattr(obstore, name), name, looked))
    monkeypatch.setattr(Path, "read_bytes", _noting_reads(Path.read_bytes, looked))
    noted = _noting_writes(write_files, looked)
    monkeypatch.setattr("services.common.artifacts.store.write_files", noted)
    for content in (b"known", b"other"):
        digest = sha256(content).hexdigest()
        looked.clear()
        run_spec = {"request": "x", "inputs": [{"artifact": {"sha256": digest}}]}
        replies = [
            await keyed_gateway.gateway.http.head(f"/v1/artifacts/{digest}", headers=headers),
            await keyed_gateway.gateway.http.get(f"/v1/artifacts/{digest}", headers=headers),
            await keyed_gateway.gateway.http.post("/v1/runs", json=run_spec, headers=headers),
            await sent(keyed_gateway.gateway, headers, content),
        ]
        assert [reply.status_code for reply in replies] == [404, 404, 404, 200]
        assert all(path.startswith("b/") for _, path in looked)
        responses[content] = [
            [reply.text.replace(digest, "D") for reply in replies[:3]],
            [(name, path.replace(digest, "D")) for name, path in looked],
        ]
    assert responses[b"known"][1]
    assert responses[b"known"] == responses[b"other"]


async def sent(gateway: GatewayUnderTest, headers: dict[str, str], content: bytes) -> httpx.Response:
    files = {"file": ("x.txt", content)}
    return await gateway.http.post("/v1/files", files=files, data={"purpose": "user_data"}, headers=headers)


def _noting_reads(done: Callable[[Path], bytes], looked: list[tuple[str, str]]) -> Callable[[Path], bytes]:
    def noted(path: Path) -> bytes:
        looked.append(("read", "/".join(path.parts[-2:])))
        return done(path)

    return noted


def _noting_writes(done: Callable[..., None], looked: list[tuple[str, str]]) -> Callable[..., None]:
    def noted(folder: Path, contents: Mapping[str, bytes]) -> None:
        looked.extend(("write", key) for key in contents)
        done(folder, contents)

    return noted


def _noting(done: Any, name: str, looked: list[tuple[str, str]]) -> Any:
    async def noted(store: Any, path: str, *given: Any, **more: Any) -> Any:
        looked.append((name, path))
        return await done(store, path, *given, **more)

    return noted
