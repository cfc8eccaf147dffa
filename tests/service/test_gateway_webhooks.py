"""Webhooks over HTTP, and notifications sent by the gateway."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL
from services.orchestrator.settings import Settings
from tests.fakes import ScriptedOrchestrator
from tests.fakes.services import ANSWERED
from tests.fakes.web import Web
from tests.support.api_keys import KeyedGateway, bearer, start_keyed_gateway
from tests.support.gateway import start_gateway
from tests.support.orchestrator import ScriptedPeers
from tests.support.pipeline_gateway import PLAN, note, notes, start_pipeline_gateway
from tests.support.webhook_receiver import PATH, allowed_hosts, ended_batch, verified_content


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web.serving() as web:
        web.answer_with(PATH)
        yield web


@pytest.fixture
async def keyed_gateway(tmp_path: Path, web: Web) -> AsyncIterator[KeyedGateway]:
    async with start_keyed_gateway(tmp_path, {"fetch_allow": ",".join(allowed_hosts(web))}) as opened:
        yield opened


async def made(keyed_gateway: KeyedGateway, token: str, url: str) -> Any:
    reply = await keyed_gateway.gateway.http.post(
        "/v1/webhooks", json={"url": url, "name": "it"}, headers=bearer(token)
    )
    assert reply.status_code == 201, reply.text
    return reply.json()


async def test_webhook_reports_only_runs_of_its_tenant(
    keyed_gateway: KeyedGateway, web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = await keyed_gateway.token("one"), await keyed_gateway.token("other")
    webhook = await made(keyed_gateway, one, web.url + PATH)
    await keyed_gateway.gateway.ask("a request of the other", headers=bearer(other))
    run_response = await keyed_gateway.gateway.ask("a request of its own", headers=bearer(one))
    async with asyncio.timeout(20):
        request = await web.arrived.get()
        shown: Any = {}
        while not shown or shown["deliveries"][0]["state"] == "waiting":
            shown = (await keyed_gateway.gateway.http.get(f"/v1/webhooks/{webhook['id']}", headers=bearer(one))).json()
    content = verified_content(request, webhook["secret"])
    assert content["data"]["run_id"] == run_response.json()["run_id"]
    assert b"a request" not in request.body
    assert [each["run_id"] for each in shown["deliveries"]] == [content["data"]["run_id"]]
    assert shown["deliveries"][0]["state"] == "delivered"
    assert "secret" not in shown
    assert len(web.requests) == 1
    logged = capsys.readouterr()
    assert webhook["secret"].removeprefix("whsec_") not in logged.out + logged.err
    assert web.url + PATH not in logged.out + logged.err


async def test_ends_during_gateway_downtime_are_reported(tmp_path: Path, web: Web) -> None:
    settings, orchestrator = {"fetch_allow": ",".join(allowed_hosts(web))}, ScriptedOrchestrator(script=[])
    async with start_gateway(tmp_path, orchestrator, settings=settings) as gateway:
        webhook = (await gateway.http.post("/v1/webhooks", json={"url": web.url + PATH})).json()
        run_id = (await gateway.ask()).json()["run_id"]
    assert not web.requests
    orchestrator.script = ANSWERED
    orchestrator.runs[run_id].send(*ANSWERED)
    async with start_gateway(tmp_path, orchestrator, settings=settings), asyncio.timeout(20):
        request = await web.arrived.get()
    assert verified_content(request, webhook["secret"])["data"]["run_id"] == run_id
    async with start_gateway(tmp_path, orchestrator, settings=settings) as gateway:
        await gateway.ask()
        async with asyncio.timeout(20):
            await web.arrived.get()
    assert (
        len({verified_content(each, webhook["secret"])["data"]["run_id"] for each in web.requests})
        == len(web.requests)
        == 2
    )


async def test_each_round_of_a_batch_is_reported_once(tmp_path: Path, web: Web) -> None:
    settings, orchestrator = {"fetch_allow": ",".join(allowed_hosts(web))}, ScriptedOrchestrator(script=ANSWERED)
    content = []
    async with start_gateway(tmp_path, orchestrator, settings=settings) as gateway:
        webhook = (await gateway.http.post("/v1/webhooks", json={"url": web.url + PATH})).json()
        for round_ in (1, 2):
            orchestrator.ended_batches = [ended_batch("batch_1", time.time() + round_, round_, tenant="default")]
            async with asyncio.timeout(20):
                content.append(verified_content(await web.arrived.get(), webhook["secret"]))
    assert [(each["type"], each["data"]["round"]) for each in content] == [("batch.ended", 1), ("batch.ended", 2)]
    async with start_gateway(tmp_path, orchestrator, settings=settings) as gateway:
        await gateway.ask()
        async with asyncio.timeout(20):
            assert verified_content(await web.arrived.get(), webhook["secret"])["type"] == "run.ended"
        shown = (await gateway.http.get(f"/v1/webhooks/{webhook['id']}")).json()["deliveries"]
    assert [each.get("batch_id") for each in shown] == [None, "batch_1", "batch_1"]
    assert len(web.requests) == 3


async def test_batch_items_are_not_reported_separately(
    peers: ScriptedPeers, settings: Settings, tmp_path: Path, web: Web
) -> None:
    async with start_pipeline_gateway(
        peers, settings, tmp_path, fetch_allow=",".join(allowed_hosts(web))
    ) as pipeline_gateway:
        webhook = (await pipeline_gateway.http.post("/v1/webhooks", json={"url": web.url + PATH})).json()
        batch = await pipeline_gateway.ended(await pipeline_gateway.started(notes(3)))
        run = await pipeline_gateway.http.post("/v1/runs", json={"plan": PLAN, "inputs": note("mine")["inputs"]})
        async with asyncio.timeout(20):
            content = [verified_content(await web.arrived.get(), webhook["secret"]) for _ in range(2)]
    by_type = {each["type"]: each["data"] for each in content}
    assert by_type["run.ended"]["run_id"] == run.json()["run_id"]
    about = by_type["batch.ended"]
    assert about["batch_id"] == batch["batch_id"]
    assert about["state"] == "completed"
    assert about["counts"] == batch["counts"]
    assert len(web.requests) == 2


async def test_webhooks_of_one_tenant_are_hidden_from_another(keyed_gateway: KeyedGateway, web: Web) -> None:
    one, other = await keyed_gateway.token("one"), await keyed_gateway.token("other")
    webhook = await made(keyed_gateway, one, web.url + PATH)
    path = f"/v1/webhooks/{webhook['id']}"
    for reply in (
        await keyed_gateway.gateway.http.get(path, headers=bearer(other)),
        await keyed_gateway.gateway.http.delete(path, headers=bearer(other)),
    ):
        assert reply.status_code == 404
        assert reply.json()["code"] == "WEBHOOK"
    assert (await keyed_gateway.gateway.http.get("/v1/webhooks", headers=bearer(other))).json()["data"] == []
    (listed,) = (await keyed_gateway.gateway.http.get("/v1/webhooks", headers=bearer(one))).json()["data"]
    assert listed["id"] == webhook["id"]
    assert "secret" not in listed
    assert (await keyed_gateway.gateway.http.delete(path, headers=bearer(one))).json()["deleted"]
    assert (await keyed_gateway.gateway.http.get(path, headers=bearer(one))).status_code == 404
    acts = [
        (entry["action"], entry["tenant"])
        async for entry in keyed_gateway.audit.entries()
        if "webhook" in entry["action"]
    ]
    assert acts == [("webhook.create", "one"), ("webhook.delete", "one")]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[]", "INVALID"),
        (b"{}", "INVALID"),
        (b'{"url": 7}', "INVALID"),
        (b'{"url": "https://example.org/", "tenant": "other"}', "INVALID"),
        (b'{"url": "https://example.org/", "name": "a\\nb"}', "INVALID"),
        (b'{"url": "http://example.org/"}', "URL"),
        (b'{"url": "https://example.org:8443/"}', "URL_ADDRESS"),
        (b'{"url": "https://127.0.0.1/"}', "URL_ADDRESS"),
        (b'{"url": "https://[::1]/"}', "URL_ADDRESS"),
        (b'{"url": "https://169.254.169.254/"}', "URL_ADDRESS"),
        (b"{", "INVALID"),
    ],
    ids=str,
)
async def test_invalid_webhook_is_rejected_with_remedy(keyed_gateway: KeyedGateway, body: bytes, code: str) -> None:
    headers = bearer(await keyed_gateway.token())
    problem = (await keyed_gateway.gateway.http.post("/v1/webhooks", content=body, headers=headers)).json()
    assert problem["code"] == code
    assert bool(problem["remedy"])


async def test_disabled_fetching_allows_configured_webhook_hosts_only(tmp_path: Path, web: Web) -> None:
    settings = {"fetch_allow": ",".join(allowed_hosts(web)), "fetch_urls": False}
    async with start_gateway(tmp_path, settings=settings) as gateway:
        assert (await gateway.http.post("/v1/webhooks", json={"url": web.url + PATH})).status_code == 201
        rejected = await gateway.http.post("/v1/webhooks", json={"url": "https://example.org/"})
    assert rejected.status_code == 403
    assert rejected.json()["code"] == "POLICY"


async def test_local_key_is_reported_to_deployment_hosts_only(keyed_gateway: KeyedGateway, web: Web) -> None:
    token = await keyed_gateway.token("one", policy=DATA_POLICY_LOCAL)
    inside = await made(keyed_gateway, token, web.url + PATH)
    outside = await made(keyed_gateway, token, "https://example.org/hooks")
    await keyed_gateway.gateway.ask(headers=bearer(token))
    async with asyncio.timeout(20):
        verified_content(await web.arrived.get(), inside["secret"])
        states = {"waiting"}
        while states == {"waiting"}:
            shown = (
                await keyed_gateway.gateway.http.get(f"/v1/webhooks/{outside['id']}", headers=bearer(token))
            ).json()
            states = {each["state"] for each in shown["deliveries"]}
    assert states == {"withheld"}
    assert "example.org is an external host" in shown["deliveries"][0]["outcome"]
