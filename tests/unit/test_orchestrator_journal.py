import asyncio
import time

import pytest

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunAccepted, RunEvent
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_AWAITING_APPROVAL,
    RUN_STATE_COMPLETED,
    RUN_STATE_RUNNING,
    Run,
    RunSpec,
    TaskResult,
)
from services.common.database import ConstraintViolation, Database, open_database
from services.common.errors import AlreadyExists, FailedPrecondition, NotFound
from services.orchestrator.journal import Journal, LeaseLost
from services.orchestrator.journal.commands import Command
from services.orchestrator.journal.idempotency import IDEMPOTENCY_SECONDS
from services.orchestrator.journal.memos import Memo
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA


def new(run_id: str, *, key: str = "", digest: str = "d", tenant: str = "default") -> NewRun:
    first = RunEvent(run_id=run_id, sequence=1, run_accepted=RunAccepted(spec=RunSpec(request="hello")))
    return NewRun(run_id, run_id, "", "hello", 9e9, Caller(tenant=tenant), key, digest, first)


def event(sequence: int) -> RunEvent:
    return RunEvent(run_id="r", sequence=sequence, answer_chunk=AnswerChunk(text=str(sequence)))


async def test_events_come_back_in_order(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    await journal.append("r", 1, [event(2), event(3)], RUN_STATE_RUNNING)
    assert [kept.sequence for kept in await journal.events("r", 0)] == [1, 2, 3]
    assert [kept.sequence for kept in await journal.events("r", 2)] == [3]
    row = await journal.row("r", "default")
    assert (row.last_sequence, row.state) == (3, RUN_STATE_RUNNING)


async def test_snapshot_is_stored_with_the_last_event(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    assert (await journal.stored_run("r", "default")).snapshot is None
    snapshot = Run(run_id="r", answer="done", last_sequence=2)
    await journal.append("r", 1, [event(2)], RUN_STATE_COMPLETED, snapshot=snapshot)
    stored = await journal.stored_run("r", "default")
    assert stored.snapshot == snapshot
    assert stored.row == await journal.row("r", "default")


async def test_snapshot_of_a_parked_run_remains_while_later_events_are_stored(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    snapshot = Run(run_id="r", last_sequence=2)
    await journal.append("r", 1, [event(2)], RUN_STATE_AWAITING_APPROVAL, snapshot=snapshot, parked_until=0.0)
    (row,) = await journal.claim(10)
    await journal.append("r", row.fence, [event(3)], RUN_STATE_RUNNING)
    stored = await journal.stored_run("r", "default")
    assert stored.snapshot == snapshot
    assert stored.row.last_sequence == 3


async def test_large_snapshot_is_not_stored(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.journal.events.SNAPSHOT_BYTES", 100)
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    await journal.append("r", 1, [event(2)], RUN_STATE_COMPLETED, snapshot=Run(answer="x" * 100))
    stored = await journal.stored_run("r", "default")
    assert stored.snapshot is None
    assert stored.row.has_ended


async def test_snapshot_of_another_tenant_is_not_found(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    with pytest.raises(NotFound):
        await journal.stored_run("r", "other")


async def test_a_gap_in_the_numbers_is_refused(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    with pytest.raises(ConstraintViolation):
        await journal.append("r", 1, [event(3)], RUN_STATE_RUNNING)
    assert [kept.sequence for kept in await journal.events("r", 0)] == [1]


async def test_an_old_owner_cannot_write(database: Database) -> None:
    old, young = Journal(database, "old", -1), Journal(database, "young", 10)
    await old.accept(new("r"))
    (claimed,) = await young.claim(10)
    assert (claimed.owner, claimed.fence) == ("young", 2)
    with pytest.raises(LeaseLost):
        await old.append("r", 1, [event(2)], RUN_STATE_RUNNING)
    await young.append("r", 2, [event(2)], RUN_STATE_RUNNING)


async def test_a_renewed_lease_is_not_claimed(database: Database) -> None:
    mine, other = Journal(database, "me", 10), Journal(database, "other", 10)
    await mine.accept(new("r"))
    assert await mine.renew(["r", "unknown"]) == {"r": 1}
    assert await other.renew(["r"]) == {}
    assert await other.claim(10) == []
    await mine.release()
    assert [row.id for row in await other.claim(10)] == ["r"]


async def test_only_what_is_named_is_renewed(database: Database) -> None:
    forgetful, other = Journal(database, "me", -1), Journal(database, "other", 10)
    await forgetful.accept(new("seen"))
    await forgetful.accept(new("lost"))
    await Journal(database, "me", 10).renew(["seen"])
    assert [row.id for row in await other.claim(10)] == ["lost"]


async def test_a_run_held_here_is_not_claimed_from_oneself(database: Database) -> None:
    busy = Journal(database, "me", -1)
    await busy.accept(new("held"))
    await busy.accept(new("left"))
    assert [row.id for row in await busy.claim(10, ["held"])] == ["left"]
    await busy.append("held", 1, [event(2)], RUN_STATE_RUNNING)


async def test_an_ended_run_is_not_claimed(database: Database) -> None:
    journal = Journal(database, "me", -1)
    await journal.accept(new("r"))
    await journal.append("r", 1, [event(2)], RUN_STATE_COMPLETED)
    assert await journal.claim(10) == []


async def test_an_idempotency_key_gives_the_same_run(database: Database) -> None:
    journal = Journal(database, "me", 10)
    assert await journal.accept(new("a", key="k")) == "a"
    assert await journal.accept(new("b", key="k")) == "a"
    assert await journal.accept(new("c", key="k", tenant="other")) == "c"
    with pytest.raises(AlreadyExists):
        await journal.accept(new("d", key="k", digest="another"))


async def test_commands_reach_the_owner_only(database: Database) -> None:
    mine, other = Journal(database, "me", 10), Journal(database, "other", 10)
    await mine.accept(new("r"))
    await other.cancel("r")
    assert await mine.commands() == [Command(1, "r", "cancel", b"")]
    assert await other.commands() == []


async def test_command_of_a_kind_is_stored_once(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    await journal.accept(new("s"))
    for _ in range(3):
        await journal.cancel("r")
    await journal.cancel("s")
    assert [(command.run_id, command.kind) for command in await journal.commands()] == [
        ("r", "cancel"),
        ("s", "cancel"),
    ]


async def test_only_an_ended_run_is_deleted(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    with pytest.raises(FailedPrecondition):
        await journal.delete("r", "default")
    await journal.append("r", 1, [event(2)], RUN_STATE_COMPLETED)
    with pytest.raises(NotFound):
        await journal.delete("r", "another-tenant")
    await journal.delete("r", "default")
    with pytest.raises(NotFound):
        await journal.row("r", "default")
    assert await journal.events("r", 0) == []


async def test_one_bad_write_does_not_harm_its_group(database: Database) -> None:
    journal = Journal(database, "me", 10)
    results = await asyncio.gather(
        *(journal.accept(new(f"r{number}")) for number in range(20)),
        journal.append("nobody", 1, [event(2)], RUN_STATE_RUNNING),
        return_exceptions=True,
    )
    assert results[:20] == [f"r{number}" for number in range(20)]
    assert isinstance(results[20], LeaseLost)
    assert len(await journal.rows("default", limit=100)) == 20


async def test_an_operation_that_contradicts_the_tables_fails_alone(database: Database) -> None:
    journal = Journal(database, "me", 10)
    results = await asyncio.gather(journal.accept(new("r")), journal.accept(new("r")), return_exceptions=True)
    assert results[0] == "r"
    assert isinstance(results[1], ConstraintViolation)


async def test_a_page_of_events_is_limited_in_bytes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.journal.events.PAGE_BYTES", 1000)
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    sizes = (300, 300, 300, 300, 5000, 10)
    events = [
        RunEvent(run_id="r", sequence=number, answer_chunk=AnswerChunk(text="x" * size))
        for number, size in enumerate(sizes, 2)
    ]
    await journal.append("r", 1, events, RUN_STATE_RUNNING)
    pages, after = [], 0
    while page := await journal.events("r", after, limit=3):
        pages.append([kept.sequence for kept in page])
        after = page[-1].sequence
    assert pages == [[1, 2, 3], [4, 5], [6], [7]]


async def test_results_are_remembered_within_the_tenant(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    first, second = (TaskResult(task_id=1, outputs={"text": Value(text=text)}) for text in ("one", "two"))
    await journal.append("r", 1, [event(2)], RUN_STATE_RUNNING, memos=[Memo("default", "d", first)])
    assert await journal.memo("default", "d") == first
    assert await journal.memo("default", "another") is None
    assert await journal.memo("another", "d") is None
    twice = [Memo("default", "d", first), Memo("default", "d", second)]
    await journal.append("r", 1, [event(3)], RUN_STATE_RUNNING, memos=twice)
    assert await journal.memo("default", "d") == second


async def test_what_an_old_owner_would_have_remembered_is_not(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    with pytest.raises(LeaseLost):
        await journal.append("r", 9, [event(2)], RUN_STATE_RUNNING, memos=[Memo("default", "d", TaskResult())])
    assert await journal.memo("default", "d") is None


async def test_an_idempotency_key_stands_for_its_run_for_a_day(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, now = Journal(database, "me", 10), time.time
    await journal.accept(new("a", key="k"))
    monkeypatch.setattr("time.time", lambda: now() + IDEMPOTENCY_SECONDS - 60)
    assert await journal.accept(new("b", key="k")) == "a"
    monkeypatch.setattr("time.time", lambda: now() + IDEMPOTENCY_SECONDS + 60)
    assert await journal.accept(new("c", key="k", digest="another")) == "c"
    assert await journal.accept(new("d", key="k", digest="another")) == "c"


async def test_one_key_sent_many_times_at_once_makes_one_run(database_url: str) -> None:
    async with (
        open_database(database_url, SCHEMA, MIGRATIONS) as one,
        open_database(database_url, SCHEMA, MIGRATIONS) as two,
    ):
        journals = [Journal(one, "one", 10), Journal(two, "two", 10)]
        found = await asyncio.gather(*(journals[number % 2].accept(new(f"r{number}", key="k")) for number in range(20)))
        assert len(set(found)) == 1
        assert [row.id for row in await journals[0].rows("default", limit=100)] == found[:1]


async def test_rows_are_paged_and_filtered(database: Database) -> None:
    journal = Journal(database, "me", 10)
    for number in range(5):
        await journal.accept(new(f"r{number}"))
    await journal.append("r3", 1, [event(2)], RUN_STATE_COMPLETED)
    page = await journal.rows("default", limit=2)
    assert [row.id for row in page] == ["r4", "r3"]
    last = (page[-1].created, page[-1].id)
    assert [row.id for row in await journal.rows("default", limit=9, before=last)] == ["r2", "r1", "r0"]
    assert [row.id for row in await journal.rows("default", limit=9, states=[RUN_STATE_COMPLETED])] == ["r3"]
    assert [row.id for row in await journal.rows("default", limit=9, conversation_id="r1")] == ["r1"]
    assert [row.id for row in await journal.rows("default", limit=9, created_after=page[1].created)] == ["r4"]


async def test_each_write_is_measured_by_its_kind(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    class Histogram:
        def record(self, seconds: float, labels: dict[str, str]) -> None:
            assert 0 < seconds < 10
            measured.append(labels["kind"])

    monkeypatch.setattr("services.orchestrator.metrics.journal_seconds", Histogram())
    journal = Journal(database, "me", 10)
    await journal.accept(new("r"))
    await journal.append("r", 1, [event(2)], RUN_STATE_RUNNING)
    await journal.cancel("r")
    await asyncio.sleep(0)
    assert measured == ["accept", "append", "command"]
