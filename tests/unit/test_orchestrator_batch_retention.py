"""What is kept for batches and pipelines, and for how long."""

import time
from pathlib import Path

import pytest

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.batch_pb2 import BatchSpec, NewItem
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunAccepted, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, BatchPosition
from protos.hugginggpt.v1.task_pb2 import Argument, Task
from services.common.database import Database, Query, Steps, sqlite
from services.common.errors import NotFound
from services.orchestrator.journal import Journal, LeaseLost, batch_removal
from services.orchestrator.journal.batch_removal import UNFINISHED_SECONDS, BatchRemoval
from services.orchestrator.journal.batch_rows import NewBatch
from services.orchestrator.journal.batches import BatchStore
from services.orchestrator.journal.pipelines import PipelineStore
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.runs.result import item_result_rows
from tests.unit.test_orchestrator_retention import RetainedRuns

CALLER = Caller(tenant="default")


class Batched(RetainedRuns):
    """A batch_journal with batches and pipelines."""

    def __init__(self, database: Database, folder: Path) -> None:
        super().__init__(database, folder)
        self.kept = self.of("me")
        self.pipelines = PipelineStore(database)

    def of(self, owner: str) -> BatchStore:
        return BatchStore(self.database, Journal(self.database, owner, 60), owner, 60)

    async def batch(self, name: str, *files: str) -> None:
        """A batch with an item for each file."""
        plan = Pipeline(plan=Plan(tasks=[Task(id=1, task="image-to-text")]))
        await self.kept.create(NewBatch(name, CALLER, BatchSpec(), plan))
        await self.kept.add(name, "default", 1, [_item(sha256) for sha256 in files], {})
        await self.kept.start(name, "default", "", "d", len(files))

    async def settle(self, name: str) -> None:
        """Ends the run of the batch's first item."""
        ended = RunEvent(run_id=name, sequence=2)
        ended.run_ended.state = RUN_STATE_COMPLETED
        fold = RunFold([_run(name, "batch", 1).first, ended])
        await self.kept._journal.append(name, 1, [ended], RUN_STATE_COMPLETED, more=item_result_rows(fold.run))

    async def tell(self, sql: str, *values: object) -> None:
        def operation() -> Steps[None]:
            yield Query(sql, values)

        await self.database.write(operation)


@pytest.fixture
async def batch_journal(database: Database, tmp_path: Path) -> Batched:
    return Batched(database, tmp_path / "artifacts")


def _item(sha256: str) -> NewItem:
    value = Value(artifact=Artifact(sha256=sha256, media_type="image/png"))
    return NewItem(name="photo", inputs=[NamedValue(name="photo", value=value)])


def _run(name: str, batch_id: str, index: int) -> NewRun:
    position = BatchPosition(batch_id=batch_id, index=index)
    first = RunEvent(run_id=name, sequence=1, run_accepted=RunAccepted(batch=position))
    return NewRun(name, name, "", "", 9e9, CALLER, "", "d", first, position)


async def test_files_of_items_that_wait_are_kept_as_long_as_the_batch(batch_journal: Batched) -> None:
    waiting, other = await batch_journal.file(b"waiting"), await batch_journal.file(b"other")
    await batch_journal.batch("batch", waiting)
    await batch_journal.retention.collect()
    assert await batch_journal.store.contains("default", waiting)
    assert not await batch_journal.store.contains("default", other)
    (claimed,) = await batch_journal.kept.claim(["batch"])
    await batch_journal.kept.end(claimed, RUN_STATE_COMPLETED, None)
    await BatchRemoval(batch_journal.database).delete("batch", "default")
    batch_journal.age_file(waiting)
    await batch_journal.retention.collect()
    assert not await batch_journal.store.contains("default", waiting)


async def test_files_in_a_pipeline_are_kept_until_it_is_removed(batch_journal: Batched) -> None:
    file = await batch_journal.file(b"a mask")
    fixed = Argument(value=Value(artifact=Artifact(sha256=file)))
    plan = Plan(tasks=[Task(id=1, task="inpainting", arguments={"mask": fixed})])
    await batch_journal.pipelines.save("default", Pipeline(name="paint", plan=plan))
    await batch_journal.tell("UPDATE pipelines SET created = 0")
    await batch_journal.retention.collect()
    assert await batch_journal.store.contains("default", file)
    assert await batch_journal.pipelines.delete("default", "paint", 0)
    await batch_journal.retention.collect()
    assert not await batch_journal.store.contains("default", file)


async def test_a_removed_batch_takes_along_what_others_would_reuse(batch_journal: Batched) -> None:
    await batch_journal.batch("batch", "a" * 64)
    await batch_journal.run("alone")
    await batch_journal.end("alone", memo="alone")
    (claimed,) = await batch_journal.kept.claim(["batch"])
    await batch_journal.kept.add_runs(claimed, [_run("run", "batch", 1)], {})
    made = await batch_journal.file(b"of the batch")
    await batch_journal.end("run", output=made, memo="of the batch")
    await batch_journal.kept.end(claimed, RUN_STATE_COMPLETED, None)
    assert await batch_journal.journal.memo("default", "of the batch")
    await BatchRemoval(batch_journal.database).delete("batch", "default")
    assert await batch_journal.journal.memo("default", "of the batch") is None
    assert await batch_journal.journal.memo("default", "alone")
    await batch_journal.retention.collect()
    assert not await batch_journal.has(made)


async def test_runs_of_a_batch_to_remove_are_found_by_an_index(database: Database) -> None:
    if database.dialect is not sqlite.DIALECT:
        return  # plans of PostgreSQL depend on what is in its tables
    for query in (batch_removal._RUNS, batch_removal._MEMOS):
        plan = [row[3] for row in await database.read(f"EXPLAIN QUERY PLAN {query}", "batch", 1)]
        assert any("runs_by_batch" in step for step in plan), plan


async def test_an_old_batch_goes_with_its_runs_and_none_of_them_before(batch_journal: Batched) -> None:
    await batch_journal.batch("batch", "a" * 64)
    (claimed,) = await batch_journal.kept.claim(["batch"])
    await batch_journal.kept.add_runs(claimed, [_run("run", "batch", 1)], {})
    await batch_journal.settle("run")
    await batch_journal.tell("UPDATE runs SET created = 1, lease_until = 1")
    await batch_journal.retention.collect()
    assert (await batch_journal.journal.row("run", "default")).has_ended
    await batch_journal.kept.end(claimed, RUN_STATE_COMPLETED, None)
    await batch_journal.tell("UPDATE batches SET ended = 1 WHERE id = ?", "batch")
    await batch_journal.retention.collect()
    for gone in (batch_journal.kept.row("batch", "default"), batch_journal.journal.row("run", "default")):
        with pytest.raises(NotFound):
            await gone
    assert (await batch_journal.kept.items("batch", 0, 10)).rows == []


async def test_what_never_became_a_batch_goes_after_a_day(batch_journal: Batched) -> None:
    await batch_journal.kept.create(NewBatch("young", CALLER, BatchSpec(), Pipeline()))
    await batch_journal.kept.create(NewBatch("old", CALLER, BatchSpec(), Pipeline()))
    await batch_journal.kept.add("old", "default", 1, [_item("a" * 64)], {})
    await batch_journal.tell("UPDATE batches SET created = ? WHERE id = 'old'", time.time() - UNFINISHED_SECONDS - 60)
    await batch_journal.retention.collect()
    left = await batch_journal.database.read("SELECT id FROM batches")
    assert [tuple(row) for row in left] == [("young",)]
    assert await batch_journal.kept.due(5) == []


async def test_an_owner_that_was_taken_for_dead_begins_no_item(batch_journal: Batched) -> None:
    await batch_journal.batch("batch", "a" * 64)
    (mine,) = await batch_journal.kept.claim(["batch"])
    await batch_journal.tell("UPDATE batches SET lease_until = 0")
    (theirs,) = await batch_journal.of("other").claim(["batch"])
    assert theirs.fence == mine.fence + 1
    for told in (
        batch_journal.kept.add_runs(mine, [_run("run", "batch", 1)], {}),
        batch_journal.kept.set_waiting_reason(mine, "nothing"),
        batch_journal.kept.end(mine, RUN_STATE_COMPLETED, None),
    ):
        with pytest.raises(LeaseLost):
            await told
    with pytest.raises(NotFound):
        await batch_journal.journal.row("run", "default")
    assert await batch_journal.kept.renew(["batch"]) == {}


async def test_a_batch_that_was_let_run_is_not_abandoned_and_one_that_was_abandoned_is_not_let_run(
    batch_journal: Batched,
) -> None:
    removal = BatchRemoval(batch_journal.database)
    await batch_journal.batch("runs", "a" * 64)
    await removal.abandon("runs", "default")
    assert (await batch_journal.kept.row("runs", "default")).total == 1
    await batch_journal.kept.create(NewBatch("late", CALLER, BatchSpec(), Pipeline()))
    await removal.abandon("late", "default")
    with pytest.raises(NotFound):
        await batch_journal.kept.start("late", "default", "", "d", 1)


async def test_of_late_are_runs_that_have_ended_since_the_batch_was_taken_up(batch_journal: Batched) -> None:
    await batch_journal.batch("batch", "a" * 64, "b" * 64)
    assert (await batch_journal.kept.row("batch", "default")).claimed_at == 0
    (claimed,) = await batch_journal.kept.claim(["batch"])
    await batch_journal.kept.add_runs(claimed, [_run("run", "batch", 1)], {2: Failure(message="it has no picture")})
    await batch_journal.settle("run")
    assert (await batch_journal.kept.counts("batch", claimed.batch.claimed_at - 1)).recent == 1
    await batch_journal.tell("UPDATE batches SET lease_until = 0, claimed = 1")
    (again,) = await batch_journal.kept.claim(["batch"])
    assert again.batch.claimed_at >= claimed.batch.claimed_at
    assert (await batch_journal.kept.counts("batch", again.batch.claimed_at + 1)).recent == 0
