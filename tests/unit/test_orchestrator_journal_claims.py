"""Who may write to a run, and who takes it: parking, claiming, releasing."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent, TaskEnded
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_AWAITING_APPROVAL, RUN_STATE_COMPLETED, RUN_STATE_RUNNING, TaskResult
from services.common.artifacts import ArtifactStore
from services.common.database import Database, open_database
from services.common.database.queries import ConstraintViolation
from services.orchestrator.journal import Journal, LeaseLost
from services.orchestrator.journal.memos import Memo
from services.orchestrator.journal.retention import Retention
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from tests.support.postgres import emptied_database
from tests.unit.test_orchestrator_journal import event, new

LATER = 9e9


async def parked(database: Database, until: float = LATER) -> Journal:
    """A run that waits, let go of by the journal that is given."""
    journal = Journal(database, "me", 10, "here:1")
    await journal.accept(new("r"))
    await journal.append("r", 1, [event(2)], RUN_STATE_AWAITING_APPROVAL, parked_until=until)
    return journal


async def test_a_parked_run_is_nobodys_until_there_is_a_command(database: Database) -> None:
    mine, other = await parked(database), Journal(database, "other", 10, "there:2")
    row = await mine.row("r", "default")
    assert (row.owner, row.owner_address, row.state) == ("", "", RUN_STATE_AWAITING_APPROVAL)
    assert await other.claim(10) == []
    assert not await other.overdue()
    await mine.release()
    assert await mine.renew(["r"]) == {}
    assert await other.claim(10) == []
    assert await mine.approve("r", b"plan")
    assert await other.overdue()
    (claimed,) = await other.claim(10)
    assert (claimed.id, claimed.owner, claimed.owner_address) == ("r", "other", "there:2")
    assert [(command.kind, command.payload) for command in await other.commands()] == [("approve", b"plan")]
    assert not await other.overdue()


async def test_a_parked_run_is_claimed_when_its_time_is_over(database: Database) -> None:
    await parked(database, until=time.time() - 1)
    assert await Journal(database, "other", 10).overdue()
    assert [row.id for row in await Journal(database, "other", 10).claim(10)] == ["r"]


async def test_who_parked_a_run_cannot_write_to_it(database: Database) -> None:
    mine = await parked(database)
    with pytest.raises(LeaseLost):
        await mine.append("r", 1, [event(3)], RUN_STATE_RUNNING)


async def test_parking_again_what_was_parked_is_harmless(database: Database) -> None:
    mine = await parked(database)
    await mine.append("r", 1, [event(2)], RUN_STATE_AWAITING_APPROVAL, parked_until=LATER)
    assert (await mine.row("r", "default")).last_sequence == 2


async def test_events_whose_commit_was_not_heard_of_may_be_kept_again(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    for _ in range(2):
        await journal.append("r", 1, [event(2), event(3)], RUN_STATE_RUNNING)
    changed = event(3)
    changed.answer_chunk.text = "another"
    with pytest.raises(ConstraintViolation):
        await journal.append("r", 1, [event(2), changed], RUN_STATE_RUNNING)
    assert [kept.sequence for kept in await journal.events("r", 0)] == [1, 2, 3]


async def test_only_ones_own_runs_are_released(database: Database) -> None:
    mine, other = Journal(database, "me", 10), Journal(database, "other", 10)
    for name in ("a", "b", "c"):
        await mine.accept(new(name))
    await other.release()
    assert await other.claim(10) == []
    await mine.release()
    assert {row.id for row in await other.claim(10)} == {"a", "b", "c"}


async def test_an_approval_moves_deadline_and_caller(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    caller = Caller(tenant="default", key_id="another")
    await journal.append("r", 1, [event(2)], RUN_STATE_RUNNING, deadline=123.5, caller=caller)
    row = await journal.row("r", "default")
    assert (row.deadline, row.caller, row.owner) == (123.5, caller, "me")


async def test_who_owns_a_run_says_where_it_answers(database: Database) -> None:
    await Journal(database, "me", -1, "here:1").accept(new("r"))
    other = Journal(database, "other", 10, "there:2")
    assert (await other.row("r", "default")).owner_address == "here:1"
    await other.claim(10)
    assert (await other.row("r", "default")).owner_address == "there:2"


async def test_a_clock_that_is_wrong_takes_no_lease(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    right, fast = Journal(database, "right", 60), Journal(database, "fast", 60)
    await right.accept(new("r"))
    now = time.time
    monkeypatch.setattr("time.time", lambda: now() + 86400)
    assert await fast.claim(10) == []
    await fast.accept(new("s"))
    monkeypatch.setattr("time.time", lambda: now() - 86400)
    assert await right.claim(10) == []


async def test_each_run_is_claimed_by_one_of_many(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(open_database(database_url, SCHEMA, MIGRATIONS)) for _ in range(4)]
        lost = Journal(databases[0], "lost", -1)
        await asyncio.gather(*(lost.accept(new(f"r{number}")) for number in range(40)))
        claimed: list[str] = []
        journals = [Journal(database, f"owner{number}", 60) for number, database in enumerate(databases)]
        while len(claimed) < 40:
            taken = await asyncio.gather(*(journal.claim(7) for journal in journals))
            assert any(taken)
            claimed += [row.id for rows in taken for row in rows]
        assert len(set(claimed)) == 40
        assert [rows for journal in journals for rows in await journal.claim(7)] == []


async def test_two_owners_that_both_believe_in_their_lease_do_not_both_write(database: Database) -> None:
    old, young = Journal(database, "old", -1), Journal(database, "young", 10)
    await old.accept(new("r"))
    await young.claim(10)
    results = await asyncio.gather(
        *(old.append("r", 1, [event(2)], RUN_STATE_RUNNING), young.append("r", 2, [event(2)], RUN_STATE_COMPLETED)),
        return_exceptions=True,
    )
    assert isinstance(results[0], LeaseLost) or results[0] is None  # the events are the same: it was kept once
    assert results[1] is None
    assert [kept.sequence for kept in await young.events("r", 0)] == [1, 2]
    assert (await young.row("r", "default")).state == RUN_STATE_COMPLETED


async def test_what_is_being_accepted_is_released_with_the_rest(database: Database) -> None:
    mine, other = Journal(database, "me", 10), Journal(database, "other", 10)
    accepting = [mine.accept(new(f"r{number}", key=f"k{number}")) for number in range(20)]
    await mine.release()
    assert all(future.done() for future in accepting)
    assert len(await other.claim(100)) == 20


async def test_a_run_that_another_transaction_holds_is_not_waited_for(postgres: str) -> None:
    address = await emptied_database(postgres)
    async with asyncio.timeout(20), open_database(address, SCHEMA, MIGRATIONS) as database:
        left = Journal(database, "left", -1)
        for name in ("held", "free"):
            await left.accept(new(name))
        other = await asyncpg.connect(address, server_settings={"search_path": SCHEMA})
        async with other.transaction():
            await other.fetch("SELECT id FROM runs WHERE id = 'held' FOR UPDATE")
            assert [row.id for row in await Journal(database, "young", 60).claim(10)] == ["free"]
        await other.close()
        assert [row.id for row in await Journal(database, "young", 60).claim(10)] == ["held"]


async def test_the_journal_runs_on_tables_of_the_next_version(database_url: str, tmp_path: Path) -> None:
    tables = (
        *("runs", "events", "commands", "idempotency_keys", "run_artifacts", "memos", "memo_artifacts"),
        *("held_artifacts", "retention_lease", "journal_name"),
    )
    wider = "; ".join(f"ALTER TABLE {table} ADD COLUMN later TEXT NOT NULL DEFAULT 'x'" for table in tables)
    async with open_database(database_url, SCHEMA, [*MIGRATIONS, wider]):
        pass
    async with open_database(database_url, SCHEMA, MIGRATIONS) as database:
        mine, other = Journal(database, "me", 10), Journal(database, "other", 10)
        await mine.accept(new("r", key="k"))
        result = TaskResult(outputs={"image": Value(artifact=Artifact(sha256="a" * 64))})
        ended = RunEvent(run_id="r", sequence=2, task_ended=TaskEnded(result=result))
        await mine.append(
            "r", 1, [ended], RUN_STATE_AWAITING_APPROVAL, memos=[Memo("t", "d", result)], parked_until=9e9
        )
        assert await other.approve("r", b"")
        assert await mine.overdue()
        assert [row.last_sequence for row in await other.claim(10)] == [2]
        assert await other.renew(["r"]) == {"r": 3}
        assert [command.kind for command in await other.commands()] == ["approve"]
        assert await mine.memo("t", "d") == result
        assert len(await mine.events("r", 0)) == 2
        await other.append("r", 3, [event(3)], RUN_STATE_COMPLETED)
        await Retention(database, ArtifactStore.open((tmp_path / "store").as_uri()), "me", 1.0).collect()
        await mine.delete("r", "default")
        assert await mine.rows("default", limit=10) == []
