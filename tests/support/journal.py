"""Runs and batches in a journal with an artifact store, whose rows and files tests can make old."""

import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.batch_pb2 import BatchSpec, NewItem
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunAccepted, RunEnded, RunEvent, TaskEnded
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_COMPLETED,
    RUN_STATE_RUNNING,
    BatchPosition,
    RunSpec,
    TaskResult,
)
from protos.hugginggpt.v1.task_pb2 import Task
from services.common.artifacts import ArtifactStore
from services.common.database import Database, Operation, Query, Rows, Steps
from services.common.errors import NotFound
from services.orchestrator.journal import Journal
from services.orchestrator.journal.batches import BatchStore, Claimed, NewBatch
from services.orchestrator.journal.events import Memo
from services.orchestrator.journal.idempotency import IDEMPOTENCY_SECONDS
from services.orchestrator.journal.pipelines import PipelineStore
from services.orchestrator.journal.retention import ARTIFACT_SECONDS, Retention
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.runs.result import item_result_rows

CALLER = Caller(tenant="default")

KEEP_SECONDS = 1000.0
"""How long retention keeps runs in tests."""


def new_run(
    run_id: str,
    *,
    key: str = "",
    digest: str = "d",
    tenant: str = "default",
    parent: str = "",
    spec: RunSpec | None = None,
) -> NewRun:
    """A run to store; its parent is the first run of its conversation."""
    first = RunEvent(run_id=run_id, sequence=1, run_accepted=RunAccepted(spec=spec or RunSpec(request="hello")))
    return NewRun(run_id, parent or run_id, parent, "hello", 9e9, Caller(tenant=tenant), key, digest, first)


def item_run(run_id: str, batch_id: str, index: int) -> NewRun:
    """The run of a batch item."""
    position = BatchPosition(batch_id=batch_id, index=index)
    first = RunEvent(run_id=run_id, sequence=1, run_accepted=RunAccepted(batch=position))
    return NewRun(run_id, run_id, "", "", 9e9, CALLER, "", "d", first, position)


def answer_event(sequence: int, text: str = "") -> RunEvent:
    """An event of run r: a part of its answer, by default its number."""
    return RunEvent(run_id="r", sequence=sequence, answer_chunk=AnswerChunk(text=text or str(sequence)))


async def execute(database: Database, sql: str, *values: object) -> None:
    """Executes one statement that writes."""

    def operation() -> Steps[None]:
        yield Query(sql, values)

    await database.write(operation)


class RecordingDatabase:
    """A database that records the queries of writes, and counts those of reads."""

    def __init__(self, database: Database) -> None:
        self.dialect = database.dialect
        self.writes: list[Query] = []
        self.reads = 0
        self._database = database

    def write(self, operation: Operation[Any], topic: str = "") -> Any:
        def recorded() -> Steps[Any]:
            steps = operation()
            query = next(steps)
            while True:
                self.writes.append(query)
                rows = yield query
                try:
                    query = steps.send(rows)
                except StopIteration as end:
                    return end.value

        return self._database.write(recorded, topic)

    async def read(self, sql: str, *values: Any) -> Rows:
        self.reads += 1
        return await self._database.read(sql, *values)

    def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        return self._database.changes()

    async def close(self) -> None:
        await self._database.close()


class RetainedRuns:
    """A journal with its artifact store and retention.

    Args:
        database: of the journal.
        folder: of the artifact store.
    """

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.store = ArtifactStore.open(folder.as_uri())
        self.journal = Journal(database, "me", 0)
        self.retention = self.new_retention("me")

    def new_retention(self, owner: str, keep_seconds: float = KEEP_SECONDS) -> Retention:
        return Retention(self.database, self.store, owner, keep_seconds)

    async def accept(self, run_id: str, *, parent: str = "", artifact: str = "", key: str = "") -> None:
        """Accepts a run, with an artifact as its input; its parent is the first run of its conversation."""
        inputs = [NamedValue(name="file1", value=Value(artifact=Artifact(sha256=artifact)))] if artifact else []
        await self.journal.accept(new_run(run_id, parent=parent, key=key, spec=RunSpec(request="hello", inputs=inputs)))

    async def end_task(
        self, run_id: str, *, artifact: str = "", memo: str = "", ends_run: bool = True, has_source: bool = True
    ) -> None:
        """Appends the end of a task.

        Args:
            run_id: ID of the run, which has one event.
            artifact: output of the task.
            memo: digest under which the result is stored for reuse.
            ends_run: whether the run completes with it.
            has_source: whether the result for reuse names this run.
        """
        result = TaskResult(task_id=1)
        if artifact:
            result.outputs["image"].artifact.sha256 = artifact
        reusable = TaskResult(made_by_run=run_id if has_source else "")
        reusable.MergeFrom(result)
        await self.journal.append(
            run_id,
            1,
            [RunEvent(run_id=run_id, sequence=2, task_ended=TaskEnded(result=result))],
            RUN_STATE_COMPLETED if ends_run else RUN_STATE_RUNNING,
            memos=[Memo("default", memo, reusable)] if memo else [],
        )

    async def put_old_artifact(self, content: bytes, tenant: str = "default") -> str:
        """Stores an artifact that is old enough to be deleted; returns its SHA-256."""
        sha256 = await self.put_artifact(content, tenant)
        self.age_artifact(sha256, tenant)
        return sha256

    async def put_artifact(self, content: bytes, tenant: str = "default") -> str:
        """Stores an artifact; returns its SHA-256."""
        return (await self.store.put(tenant, content, media_type="text/plain", name="file")).sha256

    def age_artifact(self, sha256: str, tenant: str = "default") -> None:
        """Makes an artifact old enough to be deleted."""
        then = time.time() - ARTIFACT_SECONDS - 60
        for name in (sha256, f"{sha256}.json"):
            os.utime(self.folder / tenant / name, (then, then))

    async def age_rows(self) -> None:
        """Makes all stored runs, results and idempotency keys older than their retention."""
        then = time.time() - KEEP_SECONDS - 60
        await self.execute("UPDATE runs SET created = ?, lease_until = ? WHERE lease_until < 8e9", then, then)
        await self.execute("UPDATE memos SET created = ?", then)
        await self.execute("UPDATE idempotency_keys SET created = ?", time.time() - IDEMPOTENCY_SECONDS - 60)

    async def execute(self, sql: str, *values: object) -> None:
        await execute(self.database, sql, *values)

    async def run_ids(self) -> set[str]:
        return {row.id for row in await self.journal.rows("default", limit=100)}

    async def has_artifact(self, sha256: str, tenant: str = "default") -> bool:
        try:
            await self.store.get(tenant, sha256)
            await self.store.head(tenant, sha256)
        except NotFound:
            return False
        return True


class RetainedBatches(RetainedRuns):
    """A journal with batches and pipelines."""

    def __init__(self, database: Database, folder: Path) -> None:
        super().__init__(database, folder)
        self.batches = self.batches_of("me")
        self.pipelines = PipelineStore(database)

    def batches_of(self, owner: str) -> BatchStore:
        """The batches for another owner."""
        return BatchStore(self.database, Journal(self.database, owner, 60), owner, 60)

    async def start_batch(self, batch_id: str, *artifacts: str) -> None:
        """Stores and starts a batch with an item for each artifact."""
        plan = Pipeline(plan=Plan(tasks=[Task(id=1, task="image-to-text")]))
        await self.batches.create(NewBatch(batch_id, CALLER, BatchSpec(), plan))
        await self.batches.add(batch_id, "default", 1, [image_item(sha256) for sha256 in artifacts], {})
        await self.batches.start(batch_id, "default", "", "d", len(artifacts))

    async def start_item(self, batch_id: str, run_id: str) -> Claimed:
        """Claims a batch and starts the run of its first item."""
        (claimed,) = await self.batches.claim([batch_id])
        await self.batches.add_runs(claimed, [item_run(run_id, batch_id, 1)], {})
        return claimed

    async def end_item(self, run_id: str, batch_id: str) -> None:
        """Ends the run of a batch's first item."""
        ended = RunEvent(run_id=run_id, sequence=2, run_ended=RunEnded(state=RUN_STATE_COMPLETED))
        run = RunFold([item_run(run_id, batch_id, 1).first, ended]).run
        await self.journal.append(run_id, 1, [ended], RUN_STATE_COMPLETED, more=item_result_rows(run))


def image_item(sha256: str) -> NewItem:
    """A batch item with an image."""
    image = Value(artifact=Artifact(sha256=sha256, media_type="image/png"))
    return NewItem(name="photo", inputs=[NamedValue(name="photo", value=image)])
