"""What is removed when it is old, and what never is."""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from protos.hugginggpt.v1 import event_pb2, plan_pb2, task_pb2
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunAccepted, RunEvent, TaskEnded
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_AWAITING_APPROVAL,
    RUN_STATE_COMPLETED,
    RUN_STATE_RUNNING,
    RunSpec,
    TaskResult,
)
from services.common.artifacts import ArtifactStore
from services.common.database import Database, Query, Steps, open_database
from services.common.errors import AlreadyExists, NotFound
from services.orchestrator.journal import Journal
from services.orchestrator.journal.artifacts import ArtifactHolds
from services.orchestrator.journal.idempotency import IDEMPOTENCY_SECONDS
from services.orchestrator.journal.memos import Memo
from services.orchestrator.journal.retention import ARTIFACT_SECONDS, Retention
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA

KEEP = 1000.0


class RetainedRuns:
    """A journal and a store, in which things can be made old."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.store = ArtifactStore.open(folder.as_uri())
        self.journal = Journal(database, "me", 0)
        self.retention = self.collector("me")

    def collector(self, owner: str, keep_seconds: float = KEEP) -> Retention:
        return Retention(self.database, self.store, owner, keep_seconds)

    async def run(self, name: str, *, parent: str = "", inputs: str = "", key: str = "") -> None:
        """Accepts a run; its parent is the first of its conversation."""
        values = [NamedValue(name="file1", value=Value(artifact=Artifact(sha256=inputs)))] if inputs else []
        spec = RunSpec(request="hello", inputs=values)
        first = RunEvent(run_id=name, sequence=1, run_accepted=RunAccepted(spec=spec))
        caller = Caller(tenant="default")
        await self.journal.accept(NewRun(name, parent or name, parent, "hello", 9e9, caller, key, "d", first))

    async def end(
        self, name: str, *, output: str = "", memo: str = "", ended: bool = True, remembered: bool = True
    ) -> None:
        result = TaskResult(task_id=1)
        if output:
            result.outputs["image"].artifact.sha256 = output
        event = RunEvent(run_id=name, sequence=2, task_ended=TaskEnded(result=result))
        known = TaskResult(made_by_run=name if remembered else "")
        known.MergeFrom(result)
        memos = [Memo("default", memo, known)] if memo else []
        state = RUN_STATE_COMPLETED if ended else RUN_STATE_RUNNING
        await self.journal.append(name, 1, [event], state, memos=memos)

    async def file(self, content: bytes, tenant: str = "default") -> str:
        """An artifact as old as one must be to be collected."""
        sha256 = (await self.store.put(tenant, content, media_type="text/plain", name="file")).sha256
        self.age_file(sha256, tenant)
        return sha256

    def age_file(self, sha256: str, tenant: str = "default") -> None:
        then = time.time() - ARTIFACT_SECONDS - 60
        for name in (sha256, f"{sha256}.json"):
            os.utime(self.folder / tenant / name, (then, then))

    async def age(self) -> None:
        """All that is in the journal by now becomes too old to be kept."""
        then = time.time() - KEEP - 60
        await self.tell("UPDATE runs SET created = ?, lease_until = ? WHERE lease_until < 8e9", then, then)
        await self.tell("UPDATE memos SET created = ?", then)
        await self.tell("UPDATE idempotency_keys SET created = ?", time.time() - IDEMPOTENCY_SECONDS - 60)

    async def tell(self, sql: str, *values: Any) -> None:
        def operation() -> Steps[None]:
            yield Query(sql, values)

        await self.database.write(operation)

    async def runs(self) -> set[str]:
        return {row.id for row in await self.journal.rows("default", limit=100)}

    async def has(self, sha256: str, tenant: str = "default") -> bool:
        try:
            await self.store.get(tenant, sha256)
            await self.store.head(tenant, sha256)
        except NotFound:
            return False
        return True


@pytest.fixture
async def retained_runs(database: Database, tmp_path: Path) -> RetainedRuns:
    return RetainedRuns(database, tmp_path / "artifacts")


async def test_ended_runs_go_when_they_are_old(retained_runs: RetainedRuns) -> None:
    for name in ("old", "under-way"):
        await retained_runs.run(name, key=name)
    await retained_runs.end("old")
    await retained_runs.age()
    await retained_runs.run("young")
    await retained_runs.end("young")
    await retained_runs.retention.collect()
    assert await retained_runs.runs() == {"under-way", "young"}
    assert await retained_runs.journal.events("old", 0) == []


async def test_many_go_a_few_at_a_time(retained_runs: RetainedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.journal.retention._CHUNK", 3)
    for number in range(7):
        await retained_runs.run(f"r{number}")
        await retained_runs.end(f"r{number}")
    await retained_runs.age()
    await retained_runs.retention.collect()
    assert await retained_runs.runs() == set()


async def test_nothing_kept_for_ever_goes(retained_runs: RetainedRuns) -> None:
    await retained_runs.run("old")
    await retained_runs.end("old", memo="d")
    await retained_runs.age()
    await retained_runs.collector("me", keep_seconds=0).collect()
    assert await retained_runs.runs() == {"old"}
    assert await retained_runs.journal.memo("default", "d")


async def test_a_run_that_waits_to_be_approved_is_kept(retained_runs: RetainedRuns) -> None:
    await retained_runs.run("waits")
    event = RunEvent(run_id="waits", sequence=2, approval_requested=event_pb2.ApprovalRequested())
    await retained_runs.journal.append("waits", 1, [event], RUN_STATE_AWAITING_APPROVAL, parked_until=1.0)
    await retained_runs.age()
    await retained_runs.retention.collect()
    assert await retained_runs.runs() == {"waits"}


@pytest.mark.parametrize("ended", [True, False])
async def test_a_conversation_is_kept_as_long_as_its_last_turn(retained_runs: RetainedRuns, ended: bool) -> None:
    await retained_runs.run("first")
    await retained_runs.end("first")
    await retained_runs.age()
    await retained_runs.run("second", parent="first")
    if ended:
        await retained_runs.end("second")
    await retained_runs.retention.collect()
    assert await retained_runs.runs() == {"first", "second"}
    if ended:
        await retained_runs.age()
        await retained_runs.retention.collect()
        assert await retained_runs.runs() == set()


async def test_keys_and_commands_go_when_nobody_needs_them(retained_runs: RetainedRuns) -> None:
    await retained_runs.run("r", key="k")
    await retained_runs.journal.cancel("r")
    await retained_runs.retention.collect()
    assert len(await retained_runs.database.read("SELECT id FROM commands")) == 1
    with pytest.raises(AlreadyExists):
        await retained_runs.journal.accept(
            NewRun("s", "s", "", "", 9e9, Caller(tenant="default"), "k", "e", RunEvent())
        )
    await retained_runs.end("r")
    await retained_runs.tell("UPDATE idempotency_keys SET created = 0")
    await retained_runs.retention.collect()
    for table in ("commands", "idempotency_keys"):
        assert list(await retained_runs.database.read(f"SELECT * FROM {table}")) == []
    assert await retained_runs.runs() == {"r"}


async def test_files_go_when_nothing_refers_to_them(retained_runs: RetainedRuns) -> None:
    kept = {
        name: await retained_runs.file(name.encode())
        for name in ("input", "output", "memo", "live", "argument", "edited")
    }
    young = (await retained_runs.store.put("default", b"young", media_type="text/plain", name="young")).sha256
    garbage, theirs = await retained_runs.file(b"garbage"), await retained_runs.file(b"input", tenant="another")
    await retained_runs.run("r", inputs=kept["input"])
    await retained_runs.end("r", output=kept["output"])
    await retained_runs.run("m")
    await retained_runs.end("m", output=kept["memo"], memo="d", remembered=False)
    await retained_runs.journal.delete("m", "default")
    await retained_runs.run("l", inputs=kept["live"])
    plan = plan_pb2.Plan(tasks=[task_pb2.Task(id=1, arguments={"image": _argument(kept["edited"])})])
    task = task_pb2.Task(
        id=1, arguments={"images": task_pb2.Argument(list=task_pb2.ArgumentList(items=[_argument(kept["argument"])]))}
    )
    events = [
        RunEvent(run_id="l", sequence=2, task_planned=event_pb2.TaskPlanned(task=task)),
        RunEvent(run_id="l", sequence=3, plan_approved=event_pb2.PlanApproved(plan=plan)),
    ]
    await retained_runs.journal.append("l", 1, events, RUN_STATE_RUNNING)
    await retained_runs.retention.collect()
    assert [name for name, sha256 in kept.items() if not await retained_runs.has(sha256)] == []
    assert await retained_runs.has(young)
    assert not await retained_runs.has(garbage)
    assert not await retained_runs.has(theirs, "another")


def _argument(sha256: str) -> task_pb2.Argument:
    return task_pb2.Argument(value=Value(artifact=Artifact(sha256=sha256)))


async def test_files_go_in_the_pass_after_what_referred_to_them(retained_runs: RetainedRuns) -> None:
    sha256, shared = await retained_runs.file(b"output"), await retained_runs.file(b"shared")
    await retained_runs.run("old", inputs=shared)
    await retained_runs.end("old", output=sha256, memo="d")
    await retained_runs.age()
    await retained_runs.run("young", inputs=shared)
    await retained_runs.retention.collect()
    assert await retained_runs.runs() == {"young"}
    assert await retained_runs.journal.memo("default", "d") is None
    assert await retained_runs.has(sha256)
    await retained_runs.retention.collect()
    assert not await retained_runs.has(sha256)
    assert await retained_runs.has(shared)


async def test_a_file_that_is_put_again_while_it_is_collected_stays(
    retained_runs: RetainedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = await retained_runs.file(b"again")
    looked_up = retained_runs.retention._referenced

    async def put_meanwhile(tenant: str, sha256s: list[str]) -> set[str]:
        found = await looked_up(tenant, sha256s)
        await retained_runs.store.put("default", b"again", media_type="text/plain", name="again")
        return found

    monkeypatch.setattr(retained_runs.retention, "_referenced", put_meanwhile)
    await retained_runs.retention.collect()
    assert await retained_runs.has(sha256)


async def test_a_file_that_is_referred_to_while_others_are_collected_stays(
    retained_runs: RetainedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [await retained_runs.file(content) for content in (b"one", b"two")]
    discard = retained_runs.store.discard
    spared: list[str] = []

    async def refer_to_the_other(tenant: str, sha256: str, **options: float) -> bool:
        if not spared:
            spared.extend(set(files) - {sha256})
            await retained_runs.run("r", inputs=spared[0])
        return await discard(tenant, sha256, **options)

    monkeypatch.setattr(retained_runs.store, "discard", refer_to_the_other)
    await retained_runs.retention.collect()
    assert [await retained_runs.has(sha256) for sha256 in sorted(files, key=spared.__contains__)] == [False, True]


async def test_streams_that_never_ended_go(retained_runs: RetainedRuns) -> None:
    for name in ("old", "young"):
        (retained_runs.folder / "_staging").mkdir(exist_ok=True)
        (retained_runs.folder / "_staging" / name).write_bytes(b"half")
    then = time.time() - ARTIFACT_SECONDS - 60
    os.utime(retained_runs.folder / "_staging/old", (then, then))
    await retained_runs.retention.collect()
    assert [path.name for path in (retained_runs.folder / "_staging").iterdir()] == ["young"]


async def test_a_store_of_another_journal_is_left_alone(retained_runs: RetainedRuns, tmp_path: Path) -> None:
    await retained_runs.store.key_values("journals").put("another", b"")
    sha256 = await retained_runs.file(b"theirs")
    await retained_runs.retention.collect()
    assert await retained_runs.has(sha256)
    await retained_runs.store.key_values("journals").delete("another")
    await retained_runs.retention.collect()
    assert not await retained_runs.has(sha256)
    async with open_database(tmp_path / "other.sqlite", SCHEMA, MIGRATIONS) as database:
        theirs = await retained_runs.file(b"theirs")
        await Retention(database, retained_runs.store, "other", KEEP).collect()
    assert await retained_runs.has(theirs)


async def test_one_process_collects_at_a_time(database_url: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(open_database(database_url, SCHEMA, MIGRATIONS)) for _ in range(3)]
        worlds = [RetainedRuns(database, tmp_path / "artifacts") for database in databases]
        collectors = [each.collector(f"owner{number}") for number, each in enumerate(worlds)]
        turns = await asyncio.gather(*(collector._acquire() for collector in collectors))
        assert sorted(turns) == [False, False, True]
        first = turns.index(True)
        assert [await collector._acquire() for collector in collectors] == turns  # it may go on, the others wait
        await worlds[0].tell("UPDATE retention_lease SET lease_until = 0")
        assert await collectors[(first + 1) % 3]._acquire()


async def test_passes_go_on_after_one_that_fails(retained_runs: RetainedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.journal.retention.FIRST_SECONDS", 0)
    monkeypatch.setattr("services.orchestrator.journal.retention.PASS_SECONDS", 0.01)
    troubles: list[Exception] = [NotFound("a bug"), ValueError("another")]
    passed, collect = asyncio.Event(), retained_runs.retention.collect

    async def troubled() -> None:
        if troubles:
            raise troubles.pop()
        await collect()
        passed.set()

    monkeypatch.setattr(retained_runs.retention, "collect", troubled)
    async with asyncio.timeout(5), retained_runs.retention:
        await passed.wait()
    assert troubles == []


async def test_what_only_a_deleted_run_referred_to_goes_and_what_others_do_stays(retained_runs: RetainedRuns) -> None:
    alone, shared, remembered = [await retained_runs.file(name) for name in (b"alone", b"shared", b"remembered")]
    young = (await retained_runs.store.put("default", b"young", media_type="text/plain", name="young")).sha256
    theirs = await retained_runs.file(b"alone", tenant="them")
    await ArtifactHolds(retained_runs.database).hold("them", "file_1", [theirs])
    await retained_runs.run("r", inputs=alone)
    await retained_runs.end("r", output=remembered, memo="d")
    await retained_runs.run("y", inputs=young)
    await retained_runs.end("y", output=shared)
    await retained_runs.run("other", inputs=shared)
    await retained_runs.journal.delete("r", "default")
    await retained_runs.journal.delete("y", "default")
    assert await retained_runs.journal.events("r", 0) == []
    assert await retained_runs.journal.memo("default", "d") is None
    await retained_runs.retention.collect()
    kept = [await retained_runs.has(sha256) for sha256 in (alone, remembered, shared, young)]
    assert kept == [False, False, True, True]
    assert await retained_runs.has(theirs, "them")
    retained_runs.age_file(young)
    await retained_runs.retention.collect()
    assert not await retained_runs.has(young)


async def test_a_result_that_another_run_gave_meanwhile_outlives_the_one_that_gave_it_first(
    retained_runs: RetainedRuns,
) -> None:
    for name in ("first", "second"):
        await retained_runs.run(name)
        await retained_runs.end(name, memo="d")
    await retained_runs.journal.delete("first", "default")
    assert await retained_runs.journal.memo("default", "d")
    await retained_runs.journal.delete("second", "default")
    assert await retained_runs.journal.memo("default", "d") is None


async def test_what_somebody_holds_is_kept_until_it_is_let_go(retained_runs: RetainedRuns) -> None:
    held, other = await retained_runs.file(b"held"), await retained_runs.file(b"other")
    theirs = await retained_runs.file(b"held", tenant="them")
    holds = ArtifactHolds(retained_runs.database)
    await holds.hold("default", "file_1", [held, other])
    await holds.hold("default", "file_1", [held])
    await retained_runs.retention.collect()
    assert [await retained_runs.has(held), await retained_runs.has(other), await retained_runs.has(theirs, "them")] == [
        True,
        False,
        False,
    ]
    await holds.hold("default", "file_1", [])
    await retained_runs.retention.collect()
    assert not await retained_runs.has(held)
