"""Leases of runs in the journal: claims, renewal, release, parking and fencing tokens."""

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
from services.orchestrator.journal import Journal, LeaseLost
from services.orchestrator.journal.events import Memo
from services.orchestrator.journal.retention import Retention
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from tests.support.journal import answer_event, new_run
from tests.support.postgres import emptied_database

LATER = 9e9


async def claimed_ids(journal: Journal, limit: int = 10) -> list[str]:
    return [row.id for row in await journal.claim(limit)]


async def park_run(database: Database, until: float = LATER) -> Journal:
    """Stores and parks run r; returns the journal that has parked it."""
    journal = Journal(database, "me", 10, "here:1")
    await journal.accept(new_run("r"))
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_AWAITING_APPROVAL, parked_until=until)
    return journal


# ---------------------------------------------------------------- claims


async def test_claim_raises_the_fencing_token(database: Database) -> None:
    await Journal(database, "old", -1).accept(new_run("r"))
    (row,) = await Journal(database, "new", 10).claim(10)
    assert row.owner == "new"
    assert row.fence == 2


async def test_former_owner_cannot_append(database: Database) -> None:
    old, new = Journal(database, "old", -1), Journal(database, "new", 10)
    await old.accept(new_run("r"))
    await new.claim(10)
    with pytest.raises(LeaseLost):
        await old.append("r", 1, [answer_event(2)], RUN_STATE_RUNNING)
    await new.append("r", 2, [answer_event(2)], RUN_STATE_RUNNING)


async def test_concurrent_appends_of_two_owners_are_stored_once(database: Database) -> None:
    old, new = Journal(database, "old", -1), Journal(database, "new", 10)
    await old.accept(new_run("r"))
    await new.claim(10)
    by_old, by_new = await asyncio.gather(
        old.append("r", 1, [answer_event(2)], RUN_STATE_RUNNING),
        new.append("r", 2, [answer_event(2)], RUN_STATE_COMPLETED),
        return_exceptions=True,
    )
    assert by_old is None or isinstance(by_old, LeaseLost)  # the events are equal: a repeated append is harmless
    assert by_new is None
    assert [event.sequence for event in await new.events("r", 0)] == [1, 2]
    assert (await new.row("r", "default")).state == RUN_STATE_COMPLETED


async def test_ended_run_is_not_claimed(database: Database) -> None:
    journal = Journal(database, "me", -1)
    await journal.accept(new_run("r"))
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_COMPLETED)
    assert await claimed_ids(journal) == []


async def test_owner_does_not_claim_runs_that_it_holds(database: Database) -> None:
    """Its renewal may be late."""
    journal = Journal(database, "me", -1)
    await journal.accept(new_run("held"))
    await journal.accept(new_run("lost"))
    assert [row.id for row in await journal.claim(10, ["held"])] == ["lost"]
    await journal.append("held", 1, [answer_event(2)], RUN_STATE_RUNNING)


async def test_claim_sets_the_address_of_the_owner(database: Database) -> None:
    await Journal(database, "me", -1, "here:1").accept(new_run("r"))
    other = Journal(database, "other", 10, "there:2")
    assert (await other.row("r", "default")).owner_address == "here:1"
    await other.claim(10)
    assert (await other.row("r", "default")).owner_address == "there:2"


async def test_each_run_is_claimed_by_one_of_many(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(open_database(database_url, SCHEMA, MIGRATIONS)) for _ in range(4)]
        lost = Journal(databases[0], "lost", -1)
        await asyncio.gather(*(lost.accept(new_run(f"r{number}")) for number in range(40)))
        claimed: list[str] = []
        journals = [Journal(database, f"owner{number}", 60) for number, database in enumerate(databases)]
        while len(claimed) < 40:
            found = await asyncio.gather(*(claimed_ids(journal, 7) for journal in journals))
            assert any(found)
            claimed += [run_id for run_ids in found for run_id in run_ids]
        assert len(set(claimed)) == 40
        assert [await claimed_ids(journal) for journal in journals] == [[]] * 4


async def test_claim_skips_runs_locked_by_another_transaction(postgres: str) -> None:
    address = await emptied_database(postgres)
    async with asyncio.timeout(20), open_database(address, SCHEMA, MIGRATIONS) as database:
        lost = Journal(database, "lost", -1)
        for run_id in ("locked", "free"):
            await lost.accept(new_run(run_id))
        other = await asyncpg.connect(address, server_settings={"search_path": SCHEMA})
        async with other.transaction():
            await other.fetch("SELECT id FROM runs WHERE id = 'locked' FOR UPDATE")
            assert await claimed_ids(Journal(database, "new", 60)) == ["free"]
        await other.close()
        assert await claimed_ids(Journal(database, "new", 60)) == ["locked"]


# ---------------------------------------------------------------- renewal and release


async def test_renewal_returns_the_fencing_tokens_of_owned_runs(database: Database) -> None:
    mine, other = Journal(database, "me", 10), Journal(database, "other", 10)
    await mine.accept(new_run("r"))
    assert await mine.renew(["r", "unknown"]) == {"r": 1}
    assert await other.renew(["r"]) == {}


async def test_run_with_a_valid_lease_is_not_claimed(database: Database) -> None:
    await Journal(database, "me", 10).accept(new_run("r"))
    assert await claimed_ids(Journal(database, "other", 10)) == []


async def test_only_the_given_runs_are_renewed(database: Database) -> None:
    expired, other = Journal(database, "me", -1), Journal(database, "other", 10)
    await expired.accept(new_run("renewed"))
    await expired.accept(new_run("lost"))
    await Journal(database, "me", 10).renew(["renewed"])
    assert await claimed_ids(other) == ["lost"]


async def test_wrong_system_clock_expires_no_lease(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    right, fast = Journal(database, "right", 60), Journal(database, "fast", 60)
    await right.accept(new_run("r"))
    now = time.time
    monkeypatch.setattr("time.time", lambda: now() + 86400)
    assert await claimed_ids(fast) == []
    await fast.accept(new_run("s"))
    monkeypatch.setattr("time.time", lambda: now() - 86400)
    assert await claimed_ids(right) == []


async def test_owner_releases_only_its_own_runs(database: Database) -> None:
    mine, other = Journal(database, "me", 10), Journal(database, "other", 10)
    for run_id in ("a", "b", "c"):
        await mine.accept(new_run(run_id))
    await other.release()
    assert await claimed_ids(other) == []
    await mine.release()
    assert set(await claimed_ids(other)) == {"a", "b", "c"}


async def test_release_waits_for_runs_being_accepted(database: Database) -> None:
    mine, other = Journal(database, "me", 10), Journal(database, "other", 10)
    accepting = [mine.accept(new_run(f"r{number}", key=f"k{number}")) for number in range(20)]
    await mine.release()
    assert all(future.done() for future in accepting)
    assert len(await other.claim(100)) == 20


# ---------------------------------------------------------------- parked runs


async def test_parked_run_has_no_owner(database: Database) -> None:
    journal = await park_run(database)
    row = await journal.row("r", "default")
    assert row.owner == ""
    assert row.owner_address == ""
    assert row.state == RUN_STATE_AWAITING_APPROVAL
    assert await journal.renew(["r"]) == {}


async def test_parked_run_is_not_claimed_without_a_command(database: Database) -> None:
    mine, other = await park_run(database), Journal(database, "other", 10)
    await mine.release()
    assert not await other.overdue()
    assert await claimed_ids(other) == []


async def test_approved_run_is_claimed_with_its_command(database: Database) -> None:
    mine, other = await park_run(database), Journal(database, "other", 10, "there:2")
    assert await mine.approve("r", b"plan")
    assert await other.overdue()
    (row,) = await other.claim(10)
    assert row.id == "r"
    assert row.owner == "other"
    assert row.owner_address == "there:2"
    assert [(command.kind, command.payload) for command in await other.commands()] == [("approve", b"plan")]
    assert not await other.overdue()


async def test_parked_run_is_claimed_when_its_approval_expires(database: Database) -> None:
    await park_run(database, until=time.time() - 1)
    other = Journal(database, "other", 10)
    assert await other.overdue()
    assert await claimed_ids(other) == ["r"]


async def test_former_owner_cannot_append_to_a_parked_run(database: Database) -> None:
    mine = await park_run(database)
    with pytest.raises(LeaseLost):
        await mine.append("r", 1, [answer_event(3)], RUN_STATE_RUNNING)


async def test_repeated_parking_changes_nothing(database: Database) -> None:
    mine = await park_run(database)
    await mine.append("r", 1, [answer_event(2)], RUN_STATE_AWAITING_APPROVAL, parked_until=LATER)
    assert (await mine.row("r", "default")).last_sequence == 2


async def test_approval_changes_deadline_and_caller(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("r"))
    caller = Caller(tenant="default", key_id="another")
    await journal.append("r", 1, [answer_event(2)], RUN_STATE_RUNNING, deadline=123.5, caller=caller)
    row = await journal.row("r", "default")
    assert row.deadline == 123.5
    assert row.caller == caller
    assert row.owner == "me"


# ---------------------------------------------------------------- rolling upgrades


async def test_journal_works_on_tables_of_the_next_version(database_url: str, tmp_path: Path) -> None:
    tables = (
        *("runs", "events", "commands", "idempotency_keys", "run_artifacts", "memos", "memo_artifacts"),
        *("held_artifacts", "retention_lease", "journal_name"),
    )
    wider = "; ".join(f"ALTER TABLE {table} ADD COLUMN later TEXT NOT NULL DEFAULT 'x'" for table in tables)
    async with open_database(database_url, SCHEMA, [*MIGRATIONS, wider]):
        pass
    async with open_database(database_url, SCHEMA, MIGRATIONS) as database:
        mine, other = Journal(database, "me", 10), Journal(database, "other", 10)
        await mine.accept(new_run("r", key="k"))
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
        await other.append("r", 3, [answer_event(3)], RUN_STATE_COMPLETED)
        await Retention(database, ArtifactStore.open((tmp_path / "store").as_uri()), "me", 1.0).collect()
        await mine.delete("r", "default")
        assert await mine.rows("default", limit=10) == []
