"""What is kept for batches and pipelines, and for how long."""

import time
from pathlib import Path

import pytest

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
from services.orchestrator.batches.items import settled
from services.orchestrator.journal import Journal, LeaseLost, batch_removal
from services.orchestrator.journal.batch_removal import UNFINISHED_SECONDS, BatchRemoval
from services.orchestrator.journal.batch_rows import NewBatch
from services.orchestrator.journal.batches import KeptBatches
from services.orchestrator.journal.pipelines import KeptPipelines
from services.orchestrator.journal.tables import NewRun
from services.orchestrator.runs.run_state import RunView
from tests.unit.test_orchestrator_retention import World

CALLER = Caller(tenant="default")


class Batched(World):
    """A world with batches and pipelines."""

    def __init__(self, database: Database, folder: Path) -> None:
        super().__init__(database, folder)
        self.kept = self.of("me")
        self.pipelines = KeptPipelines(database)

    def of(self, owner: str) -> KeptBatches:
        return KeptBatches(self.database, Journal(self.database, owner, 60), owner, 60)

    async def batch(self, name: str, *files: str) -> None:
        """A batch with an item for each file."""
        plan = Pipeline(plan=Plan(tasks=[Task(id=1, task="image-to-text")]))
        await self.kept.begin(NewBatch(name, CALLER, BatchSpec(), plan))
        await self.kept.add(name, "default", 1, [_item(sha256) for sha256 in files], {})
        await self.kept.start(name, "default", "", "d", len(files))

    async def settle(self, name: str) -> None:
        """Ends the run of the batch's first item."""
        ended = RunEvent(run_id=name, sequence=2)
        ended.run_ended.state = RUN_STATE_COMPLETED
        view = RunView([_run(name, "batch", 1).first, ended])
        await self.kept._journal.append(name, 1, [ended], RUN_STATE_COMPLETED, more=settled(view.run))

    async def tell(self, sql: str, *values: object) -> None:
        def operation() -> Steps[None]:
            yield Query(sql, values)

        await self.database.write(operation)


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> Batched:
    return Batched(database, tmp_path / "artifacts")


def _item(sha256: str) -> NewItem:
    value = Value(artifact=Artifact(sha256=sha256, media_type="image/png"))
    return NewItem(name="photo", inputs=[NamedValue(name="photo", value=value)])


def _run(name: str, batch_id: str, index: int) -> NewRun:
    position = BatchPosition(batch_id=batch_id, index=index)
    first = RunEvent(run_id=name, sequence=1, run_accepted=RunAccepted(batch=position))
    return NewRun(name, name, "", "", 9e9, CALLER, "", "d", first, position)


async def test_files_of_items_that_wait_are_kept_as_long_as_the_batch(world: Batched) -> None:
    waiting, other = await world.file(b"waiting"), await world.file(b"other")
    await world.batch("batch", waiting)
    await world.retention.collect()
    assert await world.store.contains("default", waiting)
    assert not await world.store.contains("default", other)
    (claimed,) = await world.kept.claim(["batch"])
    await world.kept.end(claimed, RUN_STATE_COMPLETED, None)
    await BatchRemoval(world.database).delete("batch", "default")
    world.age_file(waiting)
    await world.retention.collect()
    assert not await world.store.contains("default", waiting)


async def test_files_in_a_pipeline_are_kept_until_it_is_removed(world: Batched) -> None:
    file = await world.file(b"a mask")
    fixed = Argument(value=Value(artifact=Artifact(sha256=file)))
    plan = Plan(tasks=[Task(id=1, task="inpainting", arguments={"mask": fixed})])
    await world.pipelines.save("default", Pipeline(name="paint", plan=plan))
    await world.tell("UPDATE pipelines SET created = 0")
    await world.retention.collect()
    assert await world.store.contains("default", file)
    assert await world.pipelines.delete("default", "paint", 0)
    await world.retention.collect()
    assert not await world.store.contains("default", file)


async def test_a_removed_batch_takes_along_what_others_would_reuse(world: Batched) -> None:
    await world.batch("batch", "a" * 64)
    await world.run("alone")
    await world.end("alone", memo="alone")
    (claimed,) = await world.kept.claim(["batch"])
    await world.kept.admit(claimed, [_run("run", "batch", 1)], {})
    made = await world.file(b"of the batch")
    await world.end("run", output=made, memo="of the batch")
    await world.kept.end(claimed, RUN_STATE_COMPLETED, None)
    assert await world.journal.memo("default", "of the batch")
    await BatchRemoval(world.database).delete("batch", "default")
    assert await world.journal.memo("default", "of the batch") is None
    assert await world.journal.memo("default", "alone")
    await world.retention.collect()
    assert not await world.has(made)


async def test_runs_of_a_batch_to_remove_are_found_by_an_index(database: Database) -> None:
    if database.dialect is not sqlite.DIALECT:
        return  # plans of PostgreSQL depend on what is in its tables
    for query in (batch_removal._RUNS, batch_removal._MEMOS):
        plan = [row[3] for row in await database.read(f"EXPLAIN QUERY PLAN {query}", "batch", 1)]
        assert any("runs_of_batches" in step for step in plan), plan


async def test_an_old_batch_goes_with_its_runs_and_none_of_them_before(world: Batched) -> None:
    await world.batch("batch", "a" * 64)
    (claimed,) = await world.kept.claim(["batch"])
    await world.kept.admit(claimed, [_run("run", "batch", 1)], {})
    await world.settle("run")
    await world.tell("UPDATE runs SET created = 1, lease_until = 1")
    await world.retention.collect()
    assert (await world.journal.row("run", "default")).ended
    await world.kept.end(claimed, RUN_STATE_COMPLETED, None)
    await world.tell("UPDATE batches SET ended = 1 WHERE id = ?", "batch")
    await world.retention.collect()
    for gone in (world.kept.row("batch", "default"), world.journal.row("run", "default")):
        with pytest.raises(NotFound):
            await gone
    assert (await world.kept.items("batch", 0, 10)).rows == []


async def test_what_never_became_a_batch_goes_after_a_day(world: Batched) -> None:
    await world.kept.begin(NewBatch("young", CALLER, BatchSpec(), Pipeline()))
    await world.kept.begin(NewBatch("old", CALLER, BatchSpec(), Pipeline()))
    await world.kept.add("old", "default", 1, [_item("a" * 64)], {})
    await world.tell("UPDATE batches SET created = ? WHERE id = 'old'", time.time() - UNFINISHED_SECONDS - 60)
    await world.retention.collect()
    left = await world.database.read("SELECT id FROM batches")
    assert [tuple(row) for row in left] == [("young",)]
    assert await world.kept.due(5) == []


async def test_an_owner_that_was_taken_for_dead_begins_no_item(world: Batched) -> None:
    await world.batch("batch", "a" * 64)
    (mine,) = await world.kept.claim(["batch"])
    await world.tell("UPDATE batches SET lease_until = 0")
    (theirs,) = await world.of("other").claim(["batch"])
    assert theirs.fence == mine.fence + 1
    for told in (
        world.kept.admit(mine, [_run("run", "batch", 1)], {}),
        world.kept.waits(mine, "nothing"),
        world.kept.end(mine, RUN_STATE_COMPLETED, None),
    ):
        with pytest.raises(LeaseLost):
            await told
    with pytest.raises(NotFound):
        await world.journal.row("run", "default")
    assert await world.kept.renew(["batch"]) == {}


async def test_a_batch_that_was_let_run_is_not_abandoned_and_one_that_was_abandoned_is_not_let_run(
    world: Batched,
) -> None:
    removal = BatchRemoval(world.database)
    await world.batch("runs", "a" * 64)
    await removal.abandon("runs", "default")
    assert (await world.kept.row("runs", "default")).total == 1
    await world.kept.begin(NewBatch("late", CALLER, BatchSpec(), Pipeline()))
    await removal.abandon("late", "default")
    with pytest.raises(NotFound):
        await world.kept.start("late", "default", "", "d", 1)


async def test_of_late_are_runs_that_have_ended_since_the_batch_was_taken_up(world: Batched) -> None:
    await world.batch("batch", "a" * 64, "b" * 64)
    assert (await world.kept.row("batch", "default")).taken_up == 0
    (claimed,) = await world.kept.claim(["batch"])
    await world.kept.admit(claimed, [_run("run", "batch", 1)], {2: Failure(message="it has no picture")})
    await world.settle("run")
    assert (await world.kept.counts("batch", claimed.batch.taken_up - 1)).late == 1
    await world.tell("UPDATE batches SET lease_until = 0, taken_up = 1")
    (again,) = await world.kept.claim(["batch"])
    assert again.batch.taken_up >= claimed.batch.taken_up
    assert (await world.kept.counts("batch", again.batch.taken_up + 1)).late == 0
