"""Runs in the journal: events, snapshots, commands, results for reuse, lists and deletion."""

import asyncio

import pytest

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_AWAITING_APPROVAL,
    RUN_STATE_COMPLETED,
    RUN_STATE_RUNNING,
    Run,
    TaskResult,
)
from services.common.database import ConstraintViolation, Database, Rows
from services.common.errors import FailedPrecondition, NotFound
from services.orchestrator.journal import Journal, LeaseLost
from services.orchestrator.journal.events import Memo
from services.orchestrator.journal.leases import Command
from tests.support.journal import answer_event, new_run


async def sequences(journal: Journal, after: int = 0) -> list[int]:
    return [event.sequence for event in await journal.events("r", after)]


# ---------------------------------------------------------------- events


async def test_events_are_read_in_order(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    await journal.append("r", 1, [answer_event(2), answer_event(3)], RUN_STATE_RUNNING)
    assert await sequences(journal) == [1, 2, 3]
    assert await sequences(journal, after=2) == [3]
    row = await journal.row("r", "default")
    assert row.last_sequence == 3
    assert row.state == RUN_STATE_RUNNING


async def test_append_with_a_gap_in_the_numbers_is_rejected(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    with pytest.raises(ConstraintViolation):
        await journal.append("r", 1, [answer_event(3)], RUN_STATE_RUNNING)
    assert await sequences(journal) == [1]


async def test_repeated_append_changes_nothing(database: Database) -> None:
    """A writer repeats an append when it did not learn of the commit."""
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    for _ in range(2):
        await journal.append("r", 1, [answer_event(2), answer_event(3)], RUN_STATE_RUNNING)
    assert await sequences(journal) == [1, 2, 3]


async def test_append_of_other_events_with_stored_numbers_is_rejected(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    await journal.append("r", 1, [answer_event(2), answer_event(3)], RUN_STATE_RUNNING)
    with pytest.raises(ConstraintViolation):
        await journal.append("r", 1, [answer_event(2), answer_event(3, "another")], RUN_STATE_RUNNING)
    assert await sequences(journal) == [1, 2, 3]


async def test_page_of_events_is_limited_in_bytes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.journal.events.PAGE_BYTES", 1000)
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    sizes = (300, 300, 300, 300, 5000, 10)
    events = [answer_event(number, "x" * size) for number, size in enumerate(sizes, 2)]
    await journal.append("r", 1, events, RUN_STATE_RUNNING)
    pages, after = [], 0
    while page := await journal.events("r", after, limit=3):
        pages.append([event.sequence for event in page])
        after = page[-1].sequence
    assert pages == [[1, 2, 3], [4, 5], [6], [7]]


async def test_failed_write_does_not_affect_writes_of_its_group(database: Database) -> None:
    journal = Journal(database, "me", 10)
    results = await asyncio.gather(
        *(journal.accept(new_run(f"r{number}")) for number in range(20)),
        journal.append("unknown", 1, [answer_event(2)], RUN_STATE_RUNNING),
        return_exceptions=True,
    )
    assert results[:20] == [f"r{number}" for number in range(20)]
    assert isinstance(results[20], LeaseLost)
    assert len(await journal.rows("default", limit=100)) == 20


async def test_constraint_violation_fails_only_its_write(database: Database) -> None:
    journal = Journal(database, "me", 10)
    results = await asyncio.gather(journal.accept(new_run("r")), journal.accept(new_run("r")), return_exceptions=True)
    assert results[0] == "r"
    assert isinstance(results[1], ConstraintViolation)


async def test_each_write_is_measured_by_its_kind(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, float]] = []

    class Histogram:
        def record(self, seconds: float, labels: dict[str, str]) -> None:
            measured.append((labels["kind"], seconds))

    monkeypatch.setattr("services.orchestrator.metrics.journal_seconds", Histogram())
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_RUNNING)
    await journal.cancel("r")
    await asyncio.sleep(0)
    assert [kind for kind, _ in measured] == ["accept", "append", "command"]
    assert all(0 < seconds < 10 for _, seconds in measured)


# ---------------------------------------------------------------- snapshots


async def test_snapshot_is_stored_with_the_last_event(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    snapshot = Run(run_id="r", answer="done", last_sequence=2)
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_COMPLETED, snapshot=snapshot)
    stored = await journal.stored_run("r", "default")
    assert stored.snapshot == snapshot
    assert stored.row == await journal.row("r", "default")


async def test_active_run_has_no_snapshot(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    assert (await journal.stored_run("r", "default")).snapshot is None


async def test_snapshot_of_a_parked_run_remains_while_later_events_are_stored(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    snapshot = Run(run_id="r", last_sequence=2)
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_AWAITING_APPROVAL, snapshot=snapshot, parked_until=0.0)
    (row,) = await journal.claim(10)
    await journal.append("r", row.fence, [answer_event(3)], RUN_STATE_RUNNING)
    stored = await journal.stored_run("r", "default")
    assert stored.snapshot == snapshot
    assert stored.row.last_sequence == 3


async def test_large_snapshot_is_not_stored(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.journal.events.SNAPSHOT_BYTES", 100)
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_COMPLETED, snapshot=Run(answer="x" * 100))
    stored = await journal.stored_run("r", "default")
    assert stored.snapshot is None
    assert stored.row.has_ended


async def test_snapshot_of_another_tenant_is_not_found(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    with pytest.raises(NotFound):
        await journal.stored_run("r", "other")


# ---------------------------------------------------------------- commands


async def test_only_the_owner_reads_the_commands_of_a_run(database: Database) -> None:
    mine, other = Journal(database, "me", 10), Journal(database, "other", 10)
    await mine.accept(new_run("r"))
    await other.cancel("r")
    assert await mine.commands() == [Command(1, "r", "cancel", b"")]
    assert await other.commands() == []


async def test_repeated_cancel_command_is_stored_once(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    await journal.accept(new_run("s"))
    for _ in range(3):
        await journal.cancel("r")
    await journal.cancel("s")
    assert [command.run_id for command in await journal.commands()] == ["r", "s"]


async def test_approval_of_a_run_with_an_owner_is_not_stored(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    assert not await journal.approve("r", b"plan")
    assert not await journal.has_command("r")


# ---------------------------------------------------------------- results for reuse


async def test_result_is_reused_within_its_tenant_only(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    result = TaskResult(task_id=1, outputs={"text": Value(text="one")})
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_RUNNING, memos=[Memo("default", "d", result)])
    assert await journal.memo("default", "d") == result
    assert await journal.memo("default", "another") is None
    assert await journal.memo("another", "d") is None


async def test_results_looked_up_at_the_same_time_are_read_together(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, read, statements = Journal(database, "me", 10), database.read, list[str]()
    results = {f"d{number}": TaskResult(task_id=number) for number in range(1, 4)}
    await journal.accept(new_run("r"))
    memos = [Memo("default", digest, result) for digest, result in results.items()]
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_RUNNING, memos=memos)

    async def recorded(sql: str, *values: object) -> Rows:
        statements.append(sql)
        return await read(sql, *values)

    monkeypatch.setattr(database, "read", recorded)
    found = await asyncio.gather(*(journal.memo("default", digest) for digest in [*results, "another"]))
    assert found == [*results.values(), None]
    assert len(statements) == 1


async def test_last_result_of_equal_calls_is_reused(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    first, second = (TaskResult(task_id=1, outputs={"text": Value(text=text)}) for text in ("one", "two"))
    memos = [Memo("default", "d", first), Memo("default", "d", second)]
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_RUNNING, memos=memos)
    assert await journal.memo("default", "d") == second


async def test_result_of_a_former_owner_is_not_stored(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    with pytest.raises(LeaseLost):
        await journal.append("r", 9, [answer_event(2)], RUN_STATE_RUNNING, memos=[Memo("default", "d", TaskResult())])
    assert await journal.memo("default", "d") is None


# ---------------------------------------------------------------- lists and deletion


async def test_runs_are_listed_newest_first_in_pages(database: Database) -> None:
    journal = Journal(database, "me", 10)
    for number in range(5):
        await journal.accept(new_run(f"r{number}"))
    page = await journal.rows("default", limit=2)
    assert [row.id for row in page] == ["r4", "r3"]
    last = (page[-1].created, page[-1].id)
    assert [row.id for row in await journal.rows("default", limit=9, before=last)] == ["r2", "r1", "r0"]


async def test_list_of_runs_is_filtered(database: Database) -> None:
    journal = Journal(database, "me", 10)
    for number in range(5):
        await journal.accept(new_run(f"r{number}"))
    await journal.append("r3", 1, [answer_event(2)], RUN_STATE_COMPLETED)
    r3 = await journal.row("r3", "default")
    assert [row.id for row in await journal.rows("default", limit=9, states=[RUN_STATE_COMPLETED])] == ["r3"]
    assert [row.id for row in await journal.rows("default", limit=9, conversation_id="r1")] == ["r1"]
    assert [row.id for row in await journal.rows("default", limit=9, created_after=r3.created)] == ["r4"]


async def test_ended_run_is_deleted_with_its_events(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_COMPLETED)
    await journal.delete("r", "default")
    with pytest.raises(NotFound):
        await journal.row("r", "default")
    assert await sequences(journal) == []


async def test_active_run_is_not_deleted(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    with pytest.raises(FailedPrecondition):
        await journal.delete("r", "default")


async def test_run_of_another_tenant_is_not_deleted(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_COMPLETED)
    with pytest.raises(NotFound):
        await journal.delete("r", "another-tenant")
    assert (await journal.row("r", "default")).has_ended
