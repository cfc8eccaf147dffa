"""Webhook deliveries on SQLite and PostgreSQL, with one gateway or several."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_address

import pytest

from gateway.auth.audit import Actor
from gateway.database import gateway_store
from gateway.webhooks import delivery as delivery_module
from gateway.webhooks import sender
from gateway.webhooks.delivery import DeliveryWorker
from gateway.webhooks.outbox import Outbox
from gateway.webhooks.registry import MAX_WEBHOOKS, Delivery, Webhook, Webhooks
from protos.hugginggpt.internal.v1.orchestrator_pb2 import EndedBatch, EndedRun
from protos.hugginggpt.v1.caller_pb2 import (
    DATA_POLICY_LOCAL,
    DATA_POLICY_OPEN,
    DATA_POLICY_UNSPECIFIED,
    PRIORITY_BATCH,
    Caller,
    DataPolicy,
)
from services.common.call_context import use_caller
from services.common.database import Database, Query, Steps
from services.common.errors import FailedPrecondition, PermissionDenied, ServiceError
from services.common.http_fetch.addresses import Address, AllowList
from services.common.http_fetch.ssrf_guard import Resolve, SsrfGuard
from tests.fakes.llm.http import Request
from tests.fakes.web import Answer, Web
from tests.support.webhook_receiver import PATH, allowed_hosts, ended_batch, ended_run, verified_content

BY = Actor("default", "operator:test")
NO_TIME = (0.0, 0.0, 0.0)
OPEN = Caller(tenant="a", policy=DATA_POLICY_OPEN)


@pytest.fixture
async def gateway_database(database_url: str) -> AsyncIterator[Database]:
    async with gateway_store(database_url) as database:
        yield database


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web.serving() as web:
        web.answer_with(PATH, status=204)
        yield web


class WebhookHarness:
    """Webhooks at a receiver, and the workers that deliver to them."""

    def __init__(self, gateway_database: Database, web: Web) -> None:
        self.store, self.web = gateway_database, web
        self.guard = SsrfGuard(AllowList.parse(allowed_hosts(web)))
        self.webhooks = Webhooks(gateway_database, self.guard)

    async def webhook(self, tenant: str = "a", path: str = PATH) -> Webhook:
        return await self.webhooks.create(tenant, self.web.url + path, "", BY)

    async def ended(self, *ends: EndedRun | EndedBatch) -> None:
        outbox = Outbox(self.store)

        def operation() -> Steps[None]:
            yield Query("SELECT 1")  # as in a transaction with other statements
            for end in ends:
                yield from outbox.add(end) if isinstance(end, EndedRun) else outbox.add_batch(end)

        await self.store.write(operation)

    def delivering(self, retry_delays: Sequence[float] = NO_TIME, guard: SsrfGuard | None = None) -> DeliveryWorker:
        return DeliveryWorker(self.store, guard or self.guard, retry_delays)

    async def deliver(
        self, times: int = 1, guard: SsrfGuard | None = None, retry_delays: Sequence[float] = NO_TIME
    ) -> None:
        """Delivers due notifications at least a number of times and waits for the deliveries.

        A delivery whose retry is due at once may be attempted again within one of these times.
        """
        worker = self.delivering(retry_delays, guard)
        for _ in range(times):
            await worker.deliver_due()
            await worker.drain()

    async def only(self, webhook: Webhook) -> Delivery:
        (delivery,) = await self.webhooks.deliveries(webhook.id)
        return delivery


def make_due() -> Steps[None]:
    yield Query("UPDATE deliveries SET due = 0 WHERE due IS NOT NULL")


async def never(_request: object) -> Answer:
    await asyncio.Event().wait()
    return Answer()


@pytest.fixture
def harness(gateway_database: Database, web: Web) -> WebhookHarness:
    return WebhookHarness(gateway_database, web)


async def test_notification_is_signed_and_has_no_content(harness: WebhookHarness) -> None:
    webhook = await harness.webhook()
    await harness.ended(ended_run("run_1", time.time() + 1))
    await harness.deliver(3)
    (request,) = harness.web.requests
    content = verified_content(request, webhook.secret)
    assert content["type"] == "run.ended"
    assert content["data"]["run_id"] == "run_1"
    assert content["data"]["state"] == "completed"
    assert content["data"].keys() == {"run_id", "state", "end_time", "usage", "links"}
    assert content["data"]["usage"]["input_tokens"] == 7
    assert content["data"]["links"] == {"run": "/v1/runs/run_1", "events": "/v1/runs/run_1/events"}
    delivery = await harness.only(webhook)
    assert delivery.state == "delivered"
    assert delivery.attempts == 1
    assert delivery.outcome == "answered 204"
    assert delivery.due is None
    assert request.headers["webhook-id"] == delivery.id


async def test_only_existing_webhooks_of_the_tenant_are_notified(harness: WebhookHarness) -> None:
    one, other = await harness.webhook("a", "/hooks/a"), await harness.webhook("b", "/hooks/b")
    now = time.time() + 1
    await harness.ended(
        ended_run("run_1", now),
        ended_run("run_2", now, tenant="b"),
        ended_run("run_3", one.created - 60),
        ended_run("run_4", now, priority=PRIORITY_BATCH),
        ended_run("run_5", now, tenant="c"),
    )
    await harness.deliver()
    found = {
        request.path: verified_content(request, secret)["data"]["run_id"]
        for request, secret in _with(harness.web, one, other)
    }
    assert found == {"/hooks/a": "run_1", "/hooks/b": "run_2"}
    assert len(harness.web.requests) == 2


async def test_batch_notification_has_counts(harness: WebhookHarness) -> None:
    webhook = await harness.webhook()
    now = time.time() + 1
    await harness.ended(ended_batch("batch_1", now, 2), ended_batch("batch_2", now, tenant="b"))
    await harness.deliver(2)
    (request,) = harness.web.requests
    content = verified_content(request, webhook.secret)
    assert content["type"] == "batch.ended"
    assert content["data"]["batch_id"] == "batch_1"
    assert content["data"]["state"] == "incomplete"
    assert content["data"].keys() == {
        "batch_id",
        "round",
        "state",
        "pipeline",
        "counts",
        "create_time",
        "end_time",
        "links",
    }
    assert content["data"]["round"] == 2
    assert content["data"]["pipeline"] == {"name": "read-aloud", "version": 2}
    assert content["data"]["counts"] == {
        **dict.fromkeys(("waiting", "running", "incomplete", "cancelled"), 0),
        "total": 20,
        "completed": 19,
        "failed": 1,
    }
    at = "/v1/pipeline-batches/batch_1"
    assert content["data"]["links"] == {"batch": at, "results": f"{at}/results", "summary": f"{at}/summary"}
    delivery = await harness.only(webhook)
    assert delivery.batch_id == "batch_1"
    assert delivery.run_id == ""
    assert delivery.state == "delivered"


async def test_several_gateways_deliver_each_notification_once(harness: WebhookHarness) -> None:
    await harness.webhook()
    await harness.ended(*(ended_run(f"run_{number}", time.time() + 1) for number in range(40)))
    tellers = [harness.delivering() for _ in range(3)]
    async with asyncio.timeout(30):
        while len(harness.web.requests) < 40:
            await asyncio.gather(*(worker.deliver_due() for worker in tellers))
            await asyncio.gather(*(worker.drain() for worker in tellers))
    assert len({request.headers["webhook-id"] for request in harness.web.requests}) == 40
    await asyncio.gather(*(worker.deliver_due() for worker in tellers))
    await asyncio.gather(*(worker.drain() for worker in tellers))
    assert len(harness.web.requests) == 40


async def test_failed_delivery_is_retried_with_the_same_id(harness: WebhookHarness) -> None:
    webhook = await harness.webhook()
    harness.web.answer_with(PATH, {"secret": "of the receiver"}, status=500)
    await harness.ended(ended_run("run_1", time.time() + 1))
    await harness.deliver(10)
    assert len(harness.web.requests) == len(NO_TIME) + 1
    assert len({request.headers["webhook-id"] for request in harness.web.requests}) == 1
    delivery = await harness.only(webhook)
    assert delivery.state == "failed"
    assert delivery.attempts == len(NO_TIME) + 1
    assert delivery.outcome == "answered 500"


async def test_delivery_succeeds_when_receiver_recovers(harness: WebhookHarness) -> None:
    webhook = await harness.webhook()
    harness.web.answer_with(PATH, status=503)
    await harness.ended(ended_run("run_1", time.time() + 1))
    await harness.deliver(retry_delays=(3600.0,))
    assert (await harness.only(webhook)).state == "waiting"
    harness.web.answer_with(PATH)
    await harness.store.write(make_due)
    await harness.deliver(3)
    assert (await harness.only(webhook)).state == "delivered"
    assert len(harness.web.requests) == 2


async def test_retry_delays_grow_with_jitter_and_respect_retry_after(harness: WebhookHarness) -> None:
    webhook = await harness.webhook()
    harness.web.answer_with(PATH, status=429, headers={"Retry-After": "900"})
    await harness.ended(ended_run("run_1", time.time() + 1))
    worker = harness.delivering(retry_delays=(300.0,))
    await worker.deliver_due()
    await worker.drain()
    due = (await harness.only(webhook)).due
    assert due
    assert 890 < due - time.time() < 910
    await worker.deliver_due()
    assert len(harness.web.requests) == 1
    assert tuple(sorted(delivery_module.RETRY_DELAYS)) == delivery_module.RETRY_DELAYS
    assert 3600 < sum(delivery_module.RETRY_DELAYS) < 24 * 3600


@pytest.mark.parametrize(
    ("location", "message"),
    [("http://169.254.169.254/", "redirects are not followed"), ("/other", "redirects are not followed")],
)
async def test_redirect_is_not_followed(harness: WebhookHarness, location: str, message: str) -> None:
    webhook = await harness.webhook()
    harness.web.answer_with(PATH, status=302, headers={"Location": location})
    await harness.ended(ended_run("run_1", time.time() + 1))
    await harness.deliver()
    assert message in (await harness.only(webhook)).outcome
    assert [request.path for request in harness.web.requests] == [PATH]


async def test_webhook_that_answered_410_gets_no_deliveries(harness: WebhookHarness) -> None:
    webhook = await harness.webhook()
    harness.web.answer_with(PATH, status=410)
    await harness.ended(ended_run("run_1", time.time() + 1))
    await harness.deliver()
    await harness.ended(ended_run("run_2", time.time() + 1))
    await harness.deliver(3)
    assert len(harness.web.requests) == 1
    assert (await harness.webhooks.get(webhook.id)).ended
    assert "410 Gone" in (await harness.only(webhook)).outcome
    assert await Outbox(harness.store).earliest_webhook() is None


async def test_slow_receiver_does_not_block_others(harness: WebhookHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "ATTEMPT_SECONDS", 1.0)
    slow, quick = await harness.webhook(path="/slow"), await harness.webhook()
    harness.web.answers["/slow"] = never
    await harness.ended(*(ended_run(f"run_{number}", time.time() + 1) for number in range(8)))
    worker = harness.delivering(retry_delays=(600.0,))
    async with asyncio.timeout(30):
        while len([one for one in harness.web.requests if one.path == PATH]) < 8:
            await worker.deliver_due()
            await asyncio.sleep(0)
        await worker.drain()
    assert {delivery.state for delivery in await harness.webhooks.deliveries(quick.id)} == {"delivered"}
    first = [delivery for delivery in await harness.webhooks.deliveries(slow.id) if delivery.attempts]
    assert len(first) <= 2 * delivery_module.MAX_CONCURRENT_PER_WEBHOOK
    assert {delivery.outcome for delivery in first if delivery.outcome} == {"no response within 1 s"}


@pytest.mark.parametrize("end", [ended_run, ended_batch])
@pytest.mark.parametrize("policy", [DATA_POLICY_LOCAL, DATA_POLICY_UNSPECIFIED])
async def test_local_policy_is_delivered_to_deployment_hosts_only(
    harness: WebhookHarness, policy: "DataPolicy.ValueType", end: Callable[..., EndedRun | EndedBatch]
) -> None:
    inside, outside = await harness.webhook(), await Webhooks(harness.store).create("a", "https://hooks.test/", "", BY)
    await harness.ended(end("it", time.time() + 1, policy=policy))

    async def unasked(host: str, _port: int) -> Sequence[Address]:
        raise AssertionError(f"{host} was looked up")

    await harness.deliver(3, SsrfGuard(harness.guard.allowed, unasked))
    assert (await harness.only(inside)).state == "delivered"
    delivery = await harness.only(outside)
    assert delivery.state == "withheld"
    assert delivery.attempts == 1
    assert "data policy of this request is local, and hooks.test is an external host" in delivery.outcome


async def test_interrupted_delivery_is_retried_by_another_gateway(
    harness: WebhookHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook = await harness.webhook()
    await harness.ended(ended_run("run_1", time.time() + 1))
    monkeypatch.setattr(delivery_module, "LEASE_SECONDS", 1.0)
    harness.web.answers[PATH] = never
    async with asyncio.timeout(20), harness.delivering().running():
        await harness.web.arrived.get()
    harness.web.answer_with(PATH)
    async with asyncio.timeout(20):
        while (delivery := await harness.only(webhook)).state == "waiting":
            await harness.deliver()
    assert delivery.state == "delivered"
    assert delivery.attempts == 2


async def test_deliveries_continue_after_an_unexpected_exception(
    harness: WebhookHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module, "POLL_SECONDS", 0)
    worker, looks = harness.delivering(), 0
    real_look = worker.deliver_due

    async def failing_once() -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise RuntimeError("an unexpected error")
        await real_look()

    monkeypatch.setattr(worker, "deliver_due", failing_once)
    webhook = await harness.webhook()
    await harness.ended(ended_run("run_1", time.time() + 1))
    async with asyncio.timeout(20), worker.running():
        while (await harness.only(webhook)).state != "delivered":
            pass
    assert looks > 1


async def test_attempts_with_unexpected_errors_are_limited(
    harness: WebhookHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("an unexpected error")

    monkeypatch.setattr(delivery_module, "send", broken)
    webhook = await harness.webhook()
    await harness.ended(ended_run("run_1", time.time() + 1))
    await harness.deliver(len(NO_TIME) + 2)
    delivery = await harness.only(webhook)
    assert delivery.attempts == len(NO_TIME) + 1
    assert delivery.state == "failed"


async def test_deleting_a_webhook_deletes_its_deliveries(harness: WebhookHarness) -> None:
    webhook = await harness.webhook()
    await harness.ended(ended_run("run_1", time.time() + 1))
    await harness.webhooks.delete(webhook.id, BY)
    await harness.deliver()
    assert harness.web.requests == []
    assert not await harness.webhooks.deliveries(webhook.id)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.org/hooks", "URL"),
        ("ftp://example.org/", "URL"),
        ("https://me:secret@example.org/", "URL"),
        ("https://example.org:22/", "URL_ADDRESS"),
        ("https://2130706433/", "URL"),
        ("nonsense", "URL"),
        ("https://example.org/\n", "URL"),
    ],
)
async def test_invalid_webhook_url_is_rejected(harness: WebhookHarness, url: str, reason: str) -> None:
    with pytest.raises(ServiceError) as raised:
        await harness.webhooks.create("a", url, "", BY)
    assert raised.value.reason == reason
    assert bool(raised.value.remedy)
    assert "secret" not in raised.value.message


def leading_to(*addresses: str) -> Resolve:
    """Makes every host name resolve to these addresses."""

    async def resolve(_host: str, _port: int) -> Sequence[Address]:
        return [ip_address(address) for address in addresses]

    return resolve


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "[::1]", "[::ffff:10.0.0.5]"])
@pytest.mark.parametrize("policy", [DATA_POLICY_OPEN, DATA_POLICY_LOCAL])
async def test_webhook_of_forbidden_address_is_rejected_at_creation(
    gateway_database: Database, host: str, policy: "DataPolicy.ValueType"
) -> None:
    webhooks = Webhooks(gateway_database, SsrfGuard())
    with use_caller(Caller(tenant="a", policy=policy)), pytest.raises(PermissionDenied) as raised:
        await webhooks.create("a", f"https://{host}/", "", BY)
    assert raised.value.reason == "URL_ADDRESS"
    assert "GATEWAY_FETCH_ALLOW" in raised.value.remedy
    assert not await webhooks.list("a")


@pytest.mark.parametrize("host", ["10.0.0.5", "hooks.test"])
async def test_webhook_of_forbidden_address_is_created_if_operator_allows_it(
    gateway_database: Database, host: str
) -> None:
    webhooks = Webhooks(
        gateway_database, SsrfGuard(AllowList.parse(["10.0.0.0/8", "hooks.test"]), leading_to("127.0.0.1"))
    )
    with use_caller(OPEN):
        made = await webhooks.create("a", f"https://{host}/", "", BY)
    assert made.url == f"https://{host}/"


@pytest.mark.parametrize("policy", [DATA_POLICY_OPEN, DATA_POLICY_LOCAL])
async def test_webhook_host_name_is_not_resolved_at_creation(
    gateway_database: Database, policy: "DataPolicy.ValueType"
) -> None:
    async def resolve(host: str, _port: int) -> Sequence[Address]:
        raise AssertionError(f"{host} was looked up")

    with use_caller(Caller(tenant="a", policy=policy)):
        made = await Webhooks(gateway_database, SsrfGuard(resolve=resolve)).create("a", "https://hooks.test/", "", BY)
    assert made.url == "https://hooks.test/"


async def test_delivery_to_forbidden_address_fails_after_one_attempt(harness: WebhookHarness) -> None:
    webhook = await Webhooks(harness.store).create("a", "https://hooks.test/", "", BY)
    await harness.ended(ended_run("run_1", time.time() + 1))
    await harness.deliver(3, SsrfGuard(resolve=leading_to("10.0.0.5")))
    delivery = await harness.only(webhook)
    assert delivery.state == "failed"
    assert delivery.attempts == 1
    assert delivery.outcome == "hooks.test cannot be reached from here; not retried"


async def test_delivery_to_unresolved_host_is_retried(harness: WebhookHarness) -> None:
    webhook = await Webhooks(harness.store).create("a", "https://hooks.test/", "", BY)
    await harness.ended(ended_run("run_1", time.time() + 1))
    await harness.deliver(2, SsrfGuard(resolve=leading_to()), retry_delays=(0.0, 300.0))
    delivery = await harness.only(webhook)
    assert delivery.state == "waiting"
    assert delivery.attempts == 2


async def test_number_of_webhooks_is_limited(harness: WebhookHarness) -> None:
    for _ in range(MAX_WEBHOOKS):
        await harness.webhook()
    with pytest.raises(FailedPrecondition, match="already has 20 webhooks, the maximum"):
        await harness.webhook()
    await harness.webhook("b")


def _with(web: Web, *webhooks: Webhook) -> list[tuple[Request, str]]:
    secrets = {webhook.url.removeprefix(web.url): webhook.secret for webhook in webhooks}
    return [(request, secrets[request.path]) for request in web.requests]
