"""The table of OpenAI batches, on SQLite and PostgreSQL."""

import json
from collections.abc import AsyncIterator

import pytest

from gateway.database import gateway_store
from gateway.openai import batch_store
from gateway.openai.batch_store import BatchStore, Counts
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common.call_context import use_caller
from services.common.errors import NotFound

DETAILS = {"metadata": "{}", "site": "http://h"}


@pytest.fixture
async def batches(database_url: str) -> AsyncIterator[BatchStore]:
    async with gateway_store(database_url) as database:
        with use_caller(Caller(tenant="a")):
            yield BatchStore(database)


async def add(batches: BatchStore) -> str:
    return (await batches.add("/v1/embeddings", "file_1", Artifact(sha256="c" * 64), DETAILS)).id


async def test_batch_is_claimed_once_until_its_lease_ends(batches: BatchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_id = await add(batches)
    monkeypatch.setattr(batch_store, "LEASE_SECONDS", -1.0)
    first = await batches.claim()
    assert first
    assert first.id == batch_id
    assert first.artifact.sha256 == "c" * 64
    monkeypatch.setattr(batch_store, "LEASE_SECONDS", 60.0)
    second = await batches.claim()
    assert second == first
    assert await batches.claim() is None


async def test_ended_batch_is_neither_claimed_nor_changed(batches: BatchStore) -> None:
    batch_id = await add(batches)
    await batches.update(batch_id, state="completed", ended=True)
    await batches.update(batch_id, state="cancelling", cancelled=True)
    batch = await batches.get(batch_id)
    assert batch.state == "completed"
    assert batch.ended
    assert await batches.claim() is None


async def test_outcome_of_a_request_is_recorded_once(batches: BatchStore) -> None:
    batch_id = await add(batches)
    await batches.record(batch_id, 1, {"custom_id": "b"}, failed=False)
    await batches.record(batch_id, 0, {"custom_id": "a"}, failed=False)
    await batches.record(batch_id, 0, {"custom_id": "again"}, failed=True)
    await batches.record(batch_id, 2, {"custom_id": "c"}, failed=True)
    lines = [json.loads(line) async for line in batches.lines(batch_id, failed=False)]
    assert [line["custom_id"] for line in lines] == ["a", "b"]
    assert await batches.counts(batch_id) == Counts(completed=2, failed=1)
    assert await batches.recorded(batch_id) == {0, 1, 2}


async def test_batches_are_paged_by_tenant(batches: BatchStore) -> None:
    ids = [await add(batches) for _ in range(3)]
    with use_caller(Caller(tenant="b")):
        await add(batches)
        with pytest.raises(NotFound):
            await batches.get(ids[0])
    first, more = await batches.page(2, "")
    rest, end = await batches.page(2, first[-1].id)
    assert {batch.id for batch in (*first, *rest)} == set(ids)
    assert more
    assert not end


async def test_renewal_returns_the_state(batches: BatchStore) -> None:
    batch_id = await add(batches)
    await batches.update(batch_id, state="cancelling", cancelled=True)
    assert await batches.renew(batch_id) == "cancelling"
