"""Retention: when runs, results, keys, commands and artifacts are deleted, and which are kept."""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from protos.hugginggpt.v1 import event_pb2, plan_pb2, task_pb2
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_AWAITING_APPROVAL, RUN_STATE_RUNNING
from services.common.database import Database, open_database
from services.common.errors import AlreadyExists, NotFound
from services.orchestrator.journal.artifacts import ArtifactHolds
from services.orchestrator.journal.retention import ARTIFACT_SECONDS, Retention
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from tests.support.journal import KEEP_SECONDS, RetainedRuns, new_run


@pytest.fixture
async def runs(database: Database, tmp_path: Path) -> RetainedRuns:
    return RetainedRuns(database, tmp_path / "artifacts")


def argument(sha256: str) -> task_pb2.Argument:
    """An argument with an artifact."""
    return task_pb2.Argument(value=Value(artifact=Artifact(sha256=sha256)))


# ---------------------------------------------------------------- runs


async def test_old_ended_runs_are_deleted(runs: RetainedRuns) -> None:
    for run_id in ("old", "active"):
        await runs.accept(run_id, key=run_id)
    await runs.end_task("old")
    await runs.age_rows()
    await runs.accept("young")
    await runs.end_task("young")
    await runs.retention.collect()
    assert await runs.run_ids() == {"active", "young"}
    assert await runs.journal.events("old", 0) == []


async def test_many_old_runs_are_deleted_in_small_transactions(
    runs: RetainedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.journal.retention.CHUNK_ROWS", 3)
    for number in range(7):
        await runs.accept(f"r{number}")
        await runs.end_task(f"r{number}")
    await runs.age_rows()
    await runs.retention.collect()
    assert await runs.run_ids() == set()


async def test_runs_and_results_are_kept_for_ever_if_so_configured(runs: RetainedRuns) -> None:
    await runs.accept("old")
    await runs.end_task("old", memo="d")
    await runs.age_rows()
    await runs.new_retention("me", keep_seconds=0).collect()
    assert await runs.run_ids() == {"old"}
    assert await runs.journal.memo("default", "d")


async def test_run_that_waits_for_approval_is_kept(runs: RetainedRuns) -> None:
    await runs.accept("waits")
    event = RunEvent(run_id="waits", sequence=2, approval_requested=event_pb2.ApprovalRequested())
    await runs.journal.append("waits", 1, [event], RUN_STATE_AWAITING_APPROVAL, parked_until=1.0)
    await runs.age_rows()
    await runs.retention.collect()
    assert await runs.run_ids() == {"waits"}


@pytest.mark.parametrize("has_ended", [True, False])
async def test_conversation_is_kept_as_long_as_its_last_run(runs: RetainedRuns, has_ended: bool) -> None:
    await runs.accept("first")
    await runs.end_task("first")
    await runs.age_rows()
    await runs.accept("second", parent="first")
    if has_ended:
        await runs.end_task("second")
    await runs.retention.collect()
    assert await runs.run_ids() == {"first", "second"}


async def test_old_conversation_is_deleted(runs: RetainedRuns) -> None:
    await runs.accept("first")
    await runs.end_task("first")
    await runs.accept("second", parent="first")
    await runs.end_task("second")
    await runs.age_rows()
    await runs.retention.collect()
    assert await runs.run_ids() == set()


# ---------------------------------------------------------------- keys, commands and results


async def test_keys_and_commands_of_an_active_run_are_kept(runs: RetainedRuns) -> None:
    await runs.accept("r", key="k")
    await runs.journal.cancel("r")
    await runs.retention.collect()
    assert await runs.journal.has_command("r")
    with pytest.raises(AlreadyExists):
        await runs.journal.accept(new_run("s", key="k", digest="another"))


async def test_expired_keys_are_deleted(runs: RetainedRuns) -> None:
    await runs.accept("r", key="k")
    await runs.execute("UPDATE idempotency_keys SET created = 0")
    await runs.retention.collect()
    assert list(await runs.database.read("SELECT key FROM idempotency_keys")) == []
    assert await runs.run_ids() == {"r"}


async def test_commands_of_ended_runs_are_deleted(runs: RetainedRuns) -> None:
    await runs.accept("r")
    await runs.journal.cancel("r")
    await runs.end_task("r")
    await runs.retention.collect()
    assert not await runs.journal.has_command("r")
    assert await runs.run_ids() == {"r"}


async def test_result_from_a_later_run_remains_when_the_first_run_is_deleted(runs: RetainedRuns) -> None:
    for run_id in ("first", "second"):
        await runs.accept(run_id)
        await runs.end_task(run_id, memo="d")
    await runs.journal.delete("first", "default")
    assert await runs.journal.memo("default", "d")
    await runs.journal.delete("second", "default")
    assert await runs.journal.memo("default", "d") is None


# ---------------------------------------------------------------- artifacts


async def test_referenced_artifacts_are_kept(runs: RetainedRuns) -> None:
    artifacts = {
        name: await runs.put_old_artifact(name.encode())
        for name in ("input", "output", "memo", "active input", "argument", "approved argument")
    }
    await runs.accept("ended", artifact=artifacts["input"])
    await runs.end_task("ended", artifact=artifacts["output"])
    await runs.accept("deleted")
    await runs.end_task("deleted", artifact=artifacts["memo"], memo="d", has_source=False)
    await runs.journal.delete("deleted", "default")
    await runs.accept("active", artifact=artifacts["active input"])
    plan = plan_pb2.Plan(tasks=[task_pb2.Task(id=1, arguments={"image": argument(artifacts["approved argument"])})])
    images = task_pb2.Argument(list=task_pb2.ArgumentList(items=[argument(artifacts["argument"])]))
    task = task_pb2.Task(id=1, arguments={"images": images})
    events = [
        RunEvent(run_id="active", sequence=2, task_planned=event_pb2.TaskPlanned(task=task)),
        RunEvent(run_id="active", sequence=3, plan_approved=event_pb2.PlanApproved(plan=plan)),
    ]
    await runs.journal.append("active", 1, events, RUN_STATE_RUNNING)
    await runs.retention.collect()
    assert [name for name, sha256 in artifacts.items() if not await runs.has_artifact(sha256)] == []


async def test_artifacts_without_references_are_deleted(runs: RetainedRuns) -> None:
    unused, of_other_tenant = await runs.put_old_artifact(b"unused"), await runs.put_old_artifact(b"input", "other")
    await runs.accept("r", artifact=await runs.put_old_artifact(b"input"))
    await runs.retention.collect()
    assert not await runs.has_artifact(unused)
    assert not await runs.has_artifact(of_other_tenant, "other")


async def test_young_artifact_without_references_is_kept(runs: RetainedRuns) -> None:
    young = await runs.put_artifact(b"young")
    await runs.retention.collect()
    assert await runs.has_artifact(young)


async def test_artifact_is_deleted_in_the_pass_after_its_last_reference(runs: RetainedRuns) -> None:
    output, shared = await runs.put_old_artifact(b"output"), await runs.put_old_artifact(b"shared")
    await runs.accept("old", artifact=shared)
    await runs.end_task("old", artifact=output, memo="d")
    await runs.age_rows()
    await runs.accept("young", artifact=shared)
    await runs.retention.collect()
    assert await runs.run_ids() == {"young"}
    assert await runs.journal.memo("default", "d") is None
    assert await runs.has_artifact(output)
    await runs.retention.collect()
    assert not await runs.has_artifact(output)
    assert await runs.has_artifact(shared)


async def test_artifact_written_again_just_before_its_deletion_is_kept(
    runs: RetainedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = await runs.put_old_artifact(b"again")
    discard = runs.store.discard

    async def write_again(tenant: str, sha256: str, **options: float) -> bool:
        await runs.put_artifact(b"again")
        return await discard(tenant, sha256, **options)

    monkeypatch.setattr(runs.store, "discard", write_again)
    await runs.retention.collect()
    assert await runs.has_artifact(artifact)


async def test_artifact_referenced_while_others_are_deleted_is_kept(
    runs: RetainedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = {await runs.put_old_artifact(content) for content in (b"one", b"two")}
    discard = runs.store.discard
    referenced: list[str] = []

    async def reference_the_other(tenant: str, sha256: str, **options: float) -> bool:
        if not referenced:
            referenced.extend(artifacts - {sha256})
            await runs.accept("r", artifact=referenced[0])
        return await discard(tenant, sha256, **options)

    monkeypatch.setattr(runs.store, "discard", reference_the_other)
    await runs.retention.collect()
    assert [sha256 for sha256 in artifacts if await runs.has_artifact(sha256)] == referenced


async def test_artifacts_of_a_deleted_run_are_deleted_unless_others_refer_to_them(runs: RetainedRuns) -> None:
    alone, shared, output = [await runs.put_old_artifact(name) for name in (b"alone", b"shared", b"output")]
    held_by_other_tenant = await runs.put_old_artifact(b"alone", tenant="other")
    await ArtifactHolds(runs.database).hold("other", "file_1", [held_by_other_tenant])
    await runs.accept("deleted", artifact=alone)
    await runs.end_task("deleted", artifact=output, memo="d")
    await runs.accept("also deleted")
    await runs.end_task("also deleted", artifact=shared)
    await runs.accept("remains", artifact=shared)
    for run_id in ("deleted", "also deleted"):
        await runs.journal.delete(run_id, "default")
    assert await runs.journal.memo("default", "d") is None
    await runs.retention.collect()
    assert not await runs.has_artifact(alone)
    assert not await runs.has_artifact(output)
    assert await runs.has_artifact(shared)
    assert await runs.has_artifact(held_by_other_tenant, "other")


async def test_young_artifact_of_a_deleted_run_is_deleted_once_it_is_old(runs: RetainedRuns) -> None:
    artifact = await runs.put_artifact(b"young")
    await runs.accept("r", artifact=artifact)
    await runs.end_task("r")
    await runs.journal.delete("r", "default")
    await runs.retention.collect()
    assert await runs.has_artifact(artifact)
    runs.age_artifact(artifact)
    await runs.retention.collect()
    assert not await runs.has_artifact(artifact)


async def test_held_artifact_is_kept_until_it_is_released(runs: RetainedRuns) -> None:
    artifact = await runs.put_old_artifact(b"held")
    holds = ArtifactHolds(runs.database)
    await holds.hold("default", "file_1", [artifact])
    await runs.retention.collect()
    assert await runs.has_artifact(artifact)
    await holds.hold("default", "file_1", [])
    await runs.retention.collect()
    assert not await runs.has_artifact(artifact)


async def test_hold_replaces_the_artifacts_of_its_holder(runs: RetainedRuns) -> None:
    held, replaced = await runs.put_old_artifact(b"held"), await runs.put_old_artifact(b"replaced")
    holds = ArtifactHolds(runs.database)
    await holds.hold("default", "file_1", [held, replaced])
    await holds.hold("default", "file_1", [held])
    await runs.retention.collect()
    assert await runs.has_artifact(held)
    assert not await runs.has_artifact(replaced)


async def test_hold_does_not_keep_the_artifact_of_another_tenant(runs: RetainedRuns) -> None:
    artifact = await runs.put_old_artifact(b"held", tenant="other")
    await ArtifactHolds(runs.database).hold("default", "file_1", [artifact])
    await runs.retention.collect()
    assert not await runs.has_artifact(artifact, "other")


async def test_uploads_that_never_ended_are_deleted_when_old(runs: RetainedRuns) -> None:
    staging = runs.folder / "_staging"
    staging.mkdir(parents=True)
    for name in ("old", "young"):
        (staging / name).write_bytes(b"half")
    then = time.time() - ARTIFACT_SECONDS - 60
    os.utime(staging / "old", (then, then))
    await runs.retention.collect()
    assert [path.name for path in staging.iterdir()] == ["young"]


async def test_store_used_by_another_journal_is_left_alone(runs: RetainedRuns) -> None:
    names = runs.store.key_values("journals")
    await names.put("another", b"")
    artifact = await runs.put_old_artifact(b"unused")
    await runs.retention.collect()
    assert await runs.has_artifact(artifact)
    await names.delete("another")
    await runs.retention.collect()
    assert not await runs.has_artifact(artifact)


async def test_second_journal_leaves_the_store_of_the_first_alone(runs: RetainedRuns, tmp_path: Path) -> None:
    await runs.retention.collect()
    artifact = await runs.put_old_artifact(b"unused")
    async with open_database(tmp_path / "other.sqlite", SCHEMA, MIGRATIONS) as database:
        await Retention(database, runs.store, "other", KEEP_SECONDS).collect()
    assert await runs.has_artifact(artifact)


# ---------------------------------------------------------------- passes


async def test_one_process_collects_at_a_time(database_url: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(open_database(database_url, SCHEMA, MIGRATIONS)) for _ in range(3)]
        journals = [RetainedRuns(database, tmp_path / "artifacts") for database in databases]
        retentions = [each.new_retention(f"owner{number}") for number, each in enumerate(journals)]
        collected = await asyncio.gather(*(retention.collect() for retention in retentions))
        assert sorted(collected) == [False, False, True]
        assert [await retention.collect() for retention in retentions] == collected  # the same one may go on


async def test_another_process_collects_once_the_lease_has_expired(runs: RetainedRuns) -> None:
    assert await runs.new_retention("one").collect()
    assert not await runs.new_retention("other").collect()
    await runs.execute("UPDATE retention_lease SET lease_until = 0")
    assert await runs.new_retention("other").collect()


async def test_passes_continue_after_one_that_fails(runs: RetainedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.journal.retention.FIRST_SECONDS", 0)
    monkeypatch.setattr("services.orchestrator.journal.retention.PASS_SECONDS", 0.01)
    errors: list[Exception] = [NotFound("a bug"), ValueError("another")]
    has_collected, collect = asyncio.Event(), runs.retention.collect

    async def fail_at_first() -> bool:
        if errors:
            raise errors.pop()
        await collect()
        has_collected.set()
        return True

    monkeypatch.setattr(runs.retention, "collect", fail_at_first)
    async with asyncio.timeout(5), runs.retention:
        await has_collected.wait()
    assert errors == []
