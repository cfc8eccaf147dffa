"""API keys, audit log, usage counters and run slots, on SQLite and PostgreSQL."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from gateway.auth.api_keys import FRESH_SECONDS, STALE_SECONDS, ApiKeyCache, Keys, Terms, digest, parts
from gateway.auth.audit import Actor, Audit
from gateway.auth.authenticator import MAX_FAILURES, WINDOW_SECONDS, AuthBackoff, KeyAuthenticator
from gateway.auth.identity import NO_LIMITS, Identity, Limits, identified_as
from gateway.database import gateway_store
from gateway.limits.quotas import UNASSIGNED_SECONDS, RunSlots
from gateway.limits.usage_counters import DAY, MINUTE, MemoryCounters, StoredCounters
from services.common.database import Database, Operation, Query, Rows, Steps
from services.common.errors import (
    FailedPrecondition,
    InvalidRequest,
    NotFound,
    Overloaded,
    Unauthenticated,
    Unavailable,
)
from tests.support.api_keys import OPERATOR
from tests.support.clock import Clock


@pytest.fixture
async def gateway_database(database_url: str) -> AsyncIterator[Database]:
    async with gateway_store(database_url) as database:
        yield database


def execute(sql: str) -> Operation[Rows]:
    def operation() -> Steps[Rows]:
        return (yield Query(sql))

    return operation


async def entries(database: Database) -> list[tuple[str, str, str]]:
    return [(each["actor"], each["action"], each["subject"]) async for each in Audit(database).entries()]


async def test_only_a_digest_of_the_secret_is_stored(gateway_database: Database) -> None:
    key, token = await Keys(gateway_database).create(Terms("shop", "bot", limits={"concurrent_runs": 2}), OPERATOR)
    sent = parts(token)
    assert sent
    assert sent[0] == key.id
    ((stored, everything),) = await gateway_database.read("SELECT digest, name || tenant || limits FROM api_keys")
    assert stored == digest(sent[1])
    assert sent[1] not in everything
    assert key.matches(sent[1])
    assert not key.matches(sent[1] + "x")
    assert "digest" not in repr(key)


async def test_key_changes_are_audited(gateway_database: Database) -> None:
    keys = Keys(gateway_database)
    key, _ = await keys.create(Terms("shop"), OPERATOR)
    changed = await keys.change(key.id, {"limits": {"tokens_per_day": 5}, "name": "n"}, Actor("default", "b"))
    changed = await keys.change(key.id, {"limits": {"concurrent_runs": 1}}, Actor("default", "b"))
    assert changed.terms.limits == {"tokens_per_day": 5, "concurrent_runs": 1}
    await keys.revoke(key.id, OPERATOR)
    stored = await keys.find(key.id)
    assert stored
    assert stored.terms == changed.terms
    assert stored.state(0) == "revoked"
    me = OPERATOR.name
    acts = [(me, "key.create"), ("b", "key.change"), ("b", "key.change"), (me, "key.revoke")]
    assert await entries(gateway_database) == [(actor, act, key.id) for actor, act in acts]


async def test_revoked_or_unknown_key_cannot_be_changed(gateway_database: Database) -> None:
    keys = Keys(gateway_database)
    key, _ = await keys.create(Terms("shop"), OPERATOR)
    await keys.revoke(key.id, OPERATOR)
    with pytest.raises(FailedPrecondition):
        await keys.revoke(key.id, OPERATOR)
    with pytest.raises(NotFound):
        await keys.change("0" * 12, {"name": "n"}, OPERATOR)
    assert len(await entries(gateway_database)) == 2


@pytest.mark.parametrize("tenant", ["", "A", "../x", "a/b", ".a", "a.b", "a_b", "a" * 64, "a\n"])
async def test_invalid_tenant_name_is_rejected(gateway_database: Database, tenant: str) -> None:
    with pytest.raises(InvalidRequest):
        await Keys(gateway_database).create(Terms(tenant), OPERATOR)


@pytest.mark.parametrize("act", ["UPDATE audit SET actor = 'x'", "DELETE FROM audit"])
async def test_audit_log_is_append_only(gateway_database: Database, act: str) -> None:
    with identified_as(Identity("shop", "k1")):
        await Audit(gateway_database).record("run.delete", "run_1", why="test")
    with pytest.raises(Exception, match="the audit log is append-only"):
        await gateway_database.write(execute(act))
    assert await entries(gateway_database) == [("k1", "run.delete", "run_1")]


async def test_audit_log_is_exported_completely_in_order(
    gateway_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.auth.audit._PAGE", 2)
    for number in range(5):
        await Audit(gateway_database).record("file.delete", f"file_{number}")
    exported = [entry async for entry in Audit(gateway_database).entries()]
    assert [entry["subject"] for entry in exported] == [f"file_{number}" for number in range(5)]
    assert json.loads(json.dumps(exported)) == exported


async def test_concurrent_counter_updates_are_all_counted(gateway_database: Database) -> None:
    one, other = StoredCounters(gateway_database, Clock(90)), StoredCounters(gateway_database, Clock(119))
    seen = await asyncio.gather(*(each.add("k", "requests", MINUTE, 1) for each in (one, other) * 20))
    assert sorted(seen) == list(range(1, 41))
    assert await one.add("k", "requests", MINUTE, 0) == 40
    assert await one.add("k", "bytes", DAY, 0) == 0
    assert await StoredCounters(gateway_database, Clock(120)).add("k", "requests", MINUTE, 1) == 1


async def test_memory_counters_reset_in_each_window() -> None:
    clock = Clock(59)
    counters = MemoryCounters(clock)
    assert [await counters.add("k", "requests", MINUTE, 1) for _ in range(3)] == [1, 2, 3]
    clock.now = 60
    assert await counters.add("k", "requests", MINUTE, 1) == 1


async def test_run_slots_never_exceed_the_limit(gateway_database: Database) -> None:
    slots = RunSlots(gateway_database, Clock(0))
    results = await asyncio.gather(*(slots.reserve("k", 3) for _ in range(10)), return_exceptions=True)
    given = [each for each in results if isinstance(each, str)]
    assert len(given) == 3
    assert {type(each) for each in results} == {str, Overloaded}
    await slots.reserve("another", 1)
    await slots.release(given[0])
    await slots.reserve("k", 3)


async def test_repeated_request_for_one_run_takes_one_slot(gateway_database: Database) -> None:
    slots = RunSlots(gateway_database, Clock(0))
    for _ in range(3):
        await slots.assign(await slots.reserve("k", 2), "run_1")
    await slots.reserve("k", 2)
    with pytest.raises(Overloaded):
        await slots.reserve("k", 2)


async def test_ended_run_takes_no_slot(gateway_database: Database) -> None:
    await gateway_database.write(execute("INSERT INTO ended_runs (run_id, seen) VALUES ('run_1', 0)"))
    slots = RunSlots(gateway_database, Clock(0))
    await slots.assign(await slots.reserve("k", 1), "run_1")
    await slots.reserve("k", 1)


async def test_unassigned_slot_expires(gateway_database: Database) -> None:
    await RunSlots(gateway_database, Clock(0)).reserve("k", 1)
    await RunSlots(gateway_database, Clock(UNASSIGNED_SECONDS + 1)).reserve("k", 1)


async def test_cached_key_is_valid_while_the_database_is_unavailable(database_url: str) -> None:
    clock = Clock(0)
    async with gateway_store(database_url) as database:
        _, token = await Keys(database).create(Terms("shop"), OPERATOR)
        authenticator = KeyAuthenticator(ApiKeyCache(Keys(database), clock), NO_LIMITS)
        assert (await authenticator.authenticate(token, "")).tenant == "shop"
    clock.now = FRESH_SECONDS + 1
    assert (await authenticator.authenticate(token, "")).tenant == "shop"
    clock.now = STALE_SECONDS + 1
    with pytest.raises(Unavailable):
        await authenticator.authenticate(token, "")


async def test_missing_key_limits_take_the_gateway_defaults(gateway_database: Database) -> None:
    _, token = await Keys(gateway_database).create(Terms("shop", limits={"concurrent_runs": 0}), OPERATOR)
    authenticator = KeyAuthenticator(
        ApiKeyCache(Keys(gateway_database)), Limits(concurrent_runs=9, requests_per_minute=7)
    )
    assert (await authenticator.authenticate(token, "")).limits == Limits(concurrent_runs=0, requests_per_minute=7)


async def test_failures_are_counted_by_network_and_expire() -> None:
    clock = Clock(0)
    backoff = AuthBackoff(clock)
    for number in range(MAX_FAILURES):
        backoff.record_failure(f"2001:db8::{number:x}")
    with pytest.raises(Overloaded) as raised:
        backoff.record_failure("2001:db8::ffff")
    assert raised.value.retry_after
    assert raised.value.retry_after.total_seconds() == WINDOW_SECONDS
    backoff.record_failure("2001:db8:0:1::1")
    backoff.record_failure("10.0.0.1")
    clock.now = WINDOW_SECONDS
    backoff.record_failure("2001:db8::1")


async def test_failures_of_many_addresses_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.auth.authenticator.MAX_NETWORKS", 100)
    backoff = AuthBackoff(Clock(0))
    for number in range(1000):
        backoff.record_failure(f"10.0.{number // 256}.{number % 256}")
    assert len(backoff._windows) == 100


async def test_missing_key_is_not_counted_as_failure(gateway_database: Database) -> None:
    authenticator = KeyAuthenticator(ApiKeyCache(Keys(gateway_database)), NO_LIMITS)
    for _ in range(3 * MAX_FAILURES):
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate("", "10.0.0.1")
