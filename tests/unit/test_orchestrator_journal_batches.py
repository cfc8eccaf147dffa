"""Batches in the journal: leases of their owners, pages of items, and retention."""

import time
from pathlib import Path

import pytest

from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.batch_pb2 import BatchSpec, NewItem
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from protos.hugginggpt.v1.task_pb2 import Argument, Task
from services.common.database import Database, sqlite
from services.common.errors import NotFound
from services.orchestrator.journal import LeaseLost
from services.orchestrator.journal.batches import NewBatch
from services.orchestrator.journal.retention import UNFINISHED_SECONDS, BatchRemoval
from tests.support.journal import CALLER, RecordingDatabase, RetainedBatches, image_item, item_run

KIB = 1024
DIGEST = "a" * 64


@pytest.fixture
async def journal(database: Database, tmp_path: Path) -> RetainedBatches:
    return RetainedBatches(database, tmp_path / "artifacts")


# ---------------------------------------------------------------- owners


async def test_former_owner_of_a_batch_cannot_write(journal: RetainedBatches) -> None:
    await journal.start_batch("batch", DIGEST)
    (former,) = await journal.batches.claim(["batch"])
    await journal.execute("UPDATE batches SET lease_until = 0")
    (current,) = await journal.batches_of("other").claim(["batch"])
    assert current.fence == former.fence + 1
    for write in (
        journal.batches.add_runs(former, [item_run("run", "batch", 1)], {}),
        journal.batches.set_waiting_reason(former, "nothing"),
        journal.batches.end(former, RUN_STATE_COMPLETED, None),
    ):
        with pytest.raises(LeaseLost):
            await write
    with pytest.raises(NotFound):
        await journal.journal.row("run", "default")
    assert await journal.batches.renew(["batch"]) == {}


async def test_recent_runs_are_those_that_ended_since_a_time(journal: RetainedBatches) -> None:
    await journal.start_batch("batch", DIGEST, "b" * 64)
    (claimed,) = await journal.batches.claim(["batch"])
    invalid = {2: Failure(message="it has no picture")}
    await journal.batches.add_runs(claimed, [item_run("run", "batch", 1)], invalid)
    await journal.end_item("run", "batch")
    assert (await journal.batches.counts("batch", claimed.batch.claimed_at - 1)).recent == 1
    assert (await journal.batches.counts("batch", claimed.batch.claimed_at + 60)).recent == 0


async def test_row_of_a_batch_has_the_time_of_its_last_claim(journal: RetainedBatches) -> None:
    await journal.start_batch("batch", DIGEST)
    assert (await journal.batches.row("batch", "default")).claimed_at == 0
    (first,) = await journal.batches.claim(["batch"])
    await journal.execute("UPDATE batches SET lease_until = 0, claimed = 1")
    (second,) = await journal.batches.claim(["batch"])
    assert second.batch.claimed_at >= first.batch.claimed_at


# ---------------------------------------------------------------- items


async def test_page_of_items_is_limited_in_bytes_but_has_at_least_one(journal: RetainedBatches) -> None:
    sizes = [1, 1, 50 * KIB, 50 * KIB, 500 * KIB, 1, 500 * KIB]
    items = [NewItem(name="note", inputs=[NamedValue(name="note", value=Value(text="x" * size))]) for size in sizes]
    await journal.batches.create(NewBatch("batch", CALLER, BatchSpec(), Pipeline(plan=Plan(tasks=[Task(id=1)]))))
    await journal.batches.add("batch", "default", 1, items, {})
    await journal.batches.start("batch", "default", "", "d", len(items))
    after, pages = 0, []
    while page := await journal.batches.next_items("batch", after, 3, 60 * KIB):
        pages.append([len(item.inputs[0].value.text) for item in page])
        after = page[-1].index
    assert pages == [sizes[:3], sizes[3:5], sizes[5:]]
    assert len(await journal.batches.next_items("batch", 4, 3, 60 * KIB)) == 1


# ---------------------------------------------------------------- artifacts


async def test_artifacts_of_waiting_items_are_kept_until_the_batch_is_deleted(journal: RetainedBatches) -> None:
    waiting, unused = await journal.put_old_artifact(b"waiting"), await journal.put_old_artifact(b"unused")
    await journal.start_batch("batch", waiting)
    await journal.retention.collect()
    assert await journal.has_artifact(waiting)
    assert not await journal.has_artifact(unused)
    (claimed,) = await journal.batches.claim(["batch"])
    await journal.batches.end(claimed, RUN_STATE_COMPLETED, None)
    await BatchRemoval(journal.database).delete("batch", "default")
    journal.age_artifact(waiting)
    await journal.retention.collect()
    assert not await journal.has_artifact(waiting)


async def test_artifacts_of_a_pipeline_are_kept_until_it_is_deleted(journal: RetainedBatches) -> None:
    artifact = await journal.put_old_artifact(b"a mask")
    mask = Argument(value=Value(artifact=Artifact(sha256=artifact)))
    plan = Plan(tasks=[Task(id=1, task="inpainting", arguments={"mask": mask})])
    await journal.pipelines.save("default", Pipeline(name="paint", plan=plan))
    await journal.execute("UPDATE pipelines SET created = 0")
    await journal.retention.collect()
    assert await journal.has_artifact(artifact)
    assert await journal.pipelines.delete("default", "paint", 0)
    await journal.retention.collect()
    assert not await journal.has_artifact(artifact)


# ---------------------------------------------------------------- deletion


async def test_results_for_reuse_are_deleted_with_their_batch(journal: RetainedBatches) -> None:
    await journal.start_batch("batch", DIGEST)
    await journal.accept("alone")
    await journal.end_task("alone", memo="alone")
    claimed = await journal.start_item("batch", "run")
    output = await journal.put_old_artifact(b"of the batch")
    await journal.end_task("run", artifact=output, memo="of the batch")
    await journal.batches.end(claimed, RUN_STATE_COMPLETED, None)
    assert await journal.journal.memo("default", "of the batch")
    await BatchRemoval(journal.database).delete("batch", "default")
    assert await journal.journal.memo("default", "of the batch") is None
    assert await journal.journal.memo("default", "alone")
    await journal.retention.collect()
    assert not await journal.has_artifact(output)


async def test_deletion_of_a_batch_finds_its_runs_by_an_index(journal: RetainedBatches) -> None:
    if journal.database.dialect is not sqlite.DIALECT:
        return  # query plans of PostgreSQL depend on the content of its tables
    await journal.start_batch("batch", DIGEST)
    claimed = await journal.start_item("batch", "run")
    await journal.batches.end(claimed, RUN_STATE_COMPLETED, None)
    recording = RecordingDatabase(journal.database)
    await BatchRemoval(recording).delete("batch", "default")
    deletions = [query for query in recording.writes if query.sql.startswith(("DELETE FROM runs", "DELETE FROM memos"))]
    assert len(deletions) == 2
    for query in deletions:
        plan = [row[3] for row in await journal.database.read(f"EXPLAIN QUERY PLAN {query.sql}", *query.values)]
        assert any("runs_by_batch" in step for step in plan), plan


async def test_runs_of_an_old_batch_are_kept_until_it_ends(journal: RetainedBatches) -> None:
    await journal.start_batch("batch", DIGEST)
    await journal.start_item("batch", "run")
    await journal.end_item("run", "batch")
    await journal.execute("UPDATE runs SET created = 1, lease_until = 1")
    await journal.retention.collect()
    assert (await journal.journal.row("run", "default")).has_ended


async def test_old_batch_is_deleted_with_its_runs(journal: RetainedBatches) -> None:
    await journal.start_batch("batch", DIGEST)
    claimed = await journal.start_item("batch", "run")
    await journal.end_item("run", "batch")
    await journal.batches.end(claimed, RUN_STATE_COMPLETED, None)
    await journal.execute("UPDATE batches SET ended = 1 WHERE id = ?", "batch")
    await journal.retention.collect()
    with pytest.raises(NotFound):
        await journal.batches.row("batch", "default")
    with pytest.raises(NotFound):
        await journal.journal.row("run", "default")
    assert (await journal.batches.items("batch", 0, 10)).rows == []


async def test_batch_that_never_started_is_deleted_after_a_day(journal: RetainedBatches) -> None:
    await journal.batches.create(NewBatch("young", CALLER, BatchSpec(), Pipeline()))
    await journal.batches.create(NewBatch("old", CALLER, BatchSpec(), Pipeline()))
    await journal.batches.add("old", "default", 1, [image_item(DIGEST)], {})
    await journal.execute("UPDATE batches SET created = ? WHERE id = 'old'", time.time() - UNFINISHED_SECONDS - 60)
    await journal.retention.collect()
    remaining = await journal.database.read("SELECT id FROM batches")
    assert [tuple(row) for row in remaining] == [("young",)]
    assert await journal.batches.due(5) == []


async def test_started_batch_is_not_abandoned(journal: RetainedBatches) -> None:
    await journal.start_batch("started", DIGEST)
    await BatchRemoval(journal.database).abandon("started", "default")
    assert (await journal.batches.row("started", "default")).total == 1


async def test_abandoned_batch_cannot_start(journal: RetainedBatches) -> None:
    await journal.batches.create(NewBatch("late", CALLER, BatchSpec(), Pipeline()))
    await BatchRemoval(journal.database).abandon("late", "default")
    with pytest.raises(NotFound):
        await journal.batches.start("late", "default", "", "d", 1)
