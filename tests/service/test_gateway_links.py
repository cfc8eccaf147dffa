"""Signed links: one artifact of one tenant, for a limited time."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from gateway.auth.identity import Identity, identified_as
from gateway.auth.signed_links import LinkSigner, signing_secret
from gateway.database import gateway_store
from gateway.limits.usage_counters import DAY
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.event_pb2 import RunEvent, TaskEnded, TaskPlanned
from protos.hugginggpt.v1.run_pb2 import TASK_STATE_SUCCEEDED as SUCCEEDED
from protos.hugginggpt.v1.run_pb2 import TaskResult
from protos.hugginggpt.v1.task_pb2 import Task
from tests.fakes.services import ANSWERED
from tests.support.api_keys import KeyedGateway, bearer, start_keyed_gateway
from tests.support.gateway import start_gateway

WEEK = 7 * DAY


@pytest.fixture
async def keyed_gateway(tmp_path: Path) -> AsyncIterator[KeyedGateway]:
    async with start_keyed_gateway(tmp_path) as opened:
        yield opened


async def links(folder: Path, seconds: int = WEEK) -> LinkSigner:
    """The gateway's link signer."""
    async with gateway_store(str(folder / "gateway.sqlite")) as database:
        return LinkSigner(await signing_secret(database), seconds)


async def address(keyed_gateway: KeyedGateway, folder: Path, seconds: int = WEEK) -> str:
    artifact = await keyed_gateway.gateway.store.put("a", b"hello", media_type="text/plain", name="hello.txt")
    with identified_as(Identity("a")):
        return (await links(folder, seconds)).path(artifact.sha256)


async def test_signed_link_opens_without_key(keyed_gateway: KeyedGateway, tmp_path: Path) -> None:
    path = await address(keyed_gateway, tmp_path)
    opened = await keyed_gateway.gateway.http.get(path)
    assert opened.status_code == 200
    assert opened.text == "hello"
    assert (await keyed_gateway.gateway.http.head(path)).status_code == 200
    assert (await keyed_gateway.gateway.http.get(urlsplit(path).path)).status_code == 401


@pytest.mark.parametrize(
    ("name", "value"), [("tenant", "b"), ("expires", "99999999999"), ("expires", "²"), ("signature", "é")]
)
async def test_tampered_link_is_rejected(keyed_gateway: KeyedGateway, tmp_path: Path, name: str, value: str) -> None:
    path = await address(keyed_gateway, tmp_path)
    changed = {**dict(parse_qsl(urlsplit(path).query)), name: value}
    rejected = await keyed_gateway.gateway.http.get(f"{urlsplit(path).path}?{urlencode(changed)}")
    assert rejected.status_code == 401
    assert rejected.json()["code"] == "UNAUTHENTICATED"


async def test_signed_link_opens_only_its_artifact(keyed_gateway: KeyedGateway, tmp_path: Path) -> None:
    query = urlsplit(await address(keyed_gateway, tmp_path)).query
    other = await keyed_gateway.gateway.store.put("a", b"other", media_type="text/plain", name="other.txt")
    assert (await keyed_gateway.gateway.http.get(f"/v1/artifacts/{other.sha256}?{query}")).status_code == 401
    assert (await keyed_gateway.gateway.http.get(f"/v1/runs?{query}")).status_code == 401
    assert (await keyed_gateway.gateway.http.post(f"/v1/artifacts/{other.sha256}?{query}")).status_code == 401


async def test_expired_link_is_rejected(keyed_gateway: KeyedGateway, tmp_path: Path) -> None:
    rejected = await keyed_gateway.gateway.http.get(await address(keyed_gateway, tmp_path, seconds=-WEEK))
    assert rejected.status_code == 401
    assert "expired" in rejected.json()["detail"]


async def test_key_needs_no_signature(keyed_gateway: KeyedGateway, tmp_path: Path) -> None:
    path = urlsplit(await address(keyed_gateway, tmp_path)).path
    assert (
        await keyed_gateway.gateway.http.get(path, headers=bearer(await keyed_gateway.token("a")))
    ).status_code == 200


async def test_link_is_stable_within_a_day_and_plain_without_keys(
    tmp_path: Path,
) -> None:
    now = 10 * DAY + 1.0
    signing = LinkSigner(b"secret", WEEK, clock=lambda: now)
    first = signing.path("e" * 64)
    now += DAY - 2
    assert signing.path("e" * 64) == first
    now += 2
    assert signing.path("e" * 64) != first
    assert LinkSigner().path("e" * 64) == f"/v1/artifacts/{'e' * 64}"


async def test_gateways_on_one_database_share_the_signing_secret(tmp_path: Path) -> None:
    assert (await links(tmp_path)).path("e" * 64) == (await links(tmp_path)).path("e" * 64)


async def test_signature_is_ignored_without_authentication(tmp_path: Path) -> None:
    async with start_gateway(tmp_path) as gateway:
        artifact = await gateway.store.put("default", b"hello", media_type="text/plain", name="hello.txt")
        opened = await gateway.http.get(f"/v1/artifacts/{artifact.sha256}?tenant=a&expires=1&signature=x")
    assert opened.status_code == 200


async def test_answer_images_open_on_other_sites(keyed_gateway: KeyedGateway, tmp_path: Path) -> None:
    picture = await keyed_gateway.gateway.store.put("a", b"\x89PNG", media_type="image/png", name="p.png")
    outputs = {"image": Value(artifact=picture)}
    keyed_gateway.gateway.orchestrator.script = (
        RunEvent(task_id=1, task_planned=TaskPlanned(task=Task(id=1, task="text-to-image"))),
        RunEvent(task_id=1, task_ended=TaskEnded(result=TaskResult(task_id=1, outputs=outputs), state=SUCCEEDED)),
        *ANSWERED,
    )
    body = {"model": "hugginggpt", "messages": [{"role": "user", "content": "draw it"}]}
    answered = await keyed_gateway.gateway.http.post(
        "/v1/chat/completions", json=body, headers=bearer(await keyed_gateway.token("a"))
    )
    content = answered.json()["choices"][0]["message"]["content"]
    shown = content.partition("![p.png](")[2].partition(")")[0]
    opened = await keyed_gateway.gateway.http.get(shown)
    assert opened.status_code == 200
    assert opened.content == b"\x89PNG"
    assert opened.headers["cross-origin-resource-policy"] == "cross-origin"
