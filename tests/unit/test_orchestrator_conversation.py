"""How the earlier turns of a conversation are read."""

import pytest

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunAccepted, RunEnded, RunEvent
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, RUN_STATE_RUNNING, Run, RunSpec
from services.common.database import Database
from services.orchestrator.journal import Journal
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.runs.history import EARLIER_RUNS, read_turns
from tests.support.journal import RecordingDatabase


async def add_turns(journal: Journal, count: int, tenant: str = "default", prefix: str = "") -> str:
    """Stores a conversation of ended runs; returns the id of the last."""
    parent = ""
    for number in range(1, count + 1):
        name = f"{prefix}{number}"
        accepted = RunAccepted(spec=RunSpec(request=f"question {name}"))
        first = RunEvent(run_id=name, sequence=1, run_accepted=accepted)
        await journal.accept(NewRun(name, "c", parent, "", 9e9, Caller(tenant=tenant), "", "d", first))
        answer = RunEvent(run_id=name, sequence=2, answer_chunk=AnswerChunk(text=f"answer {name}"))
        ended = RunEvent(run_id=name, sequence=3, run_ended=RunEnded(state=RUN_STATE_COMPLETED))
        snapshot = RunFold([first, answer, ended]).snapshot()
        await journal.append(name, 1, [answer, ended], RUN_STATE_COMPLETED, snapshot=snapshot)
        parent = name
    return parent


def request(text: str, parent: str) -> Run:
    return Run(run_id="now", spec=RunSpec(request=text, parent_run_id=parent))


async def test_conversation_is_read_in_one_query(database: Database) -> None:
    recording = RecordingDatabase(database)
    journal = Journal(recording, "me", 60)
    last = await add_turns(journal, 5)
    turns = await read_turns(request("and now?", last), "default", journal)
    assert recording.reads == 1
    assert [turn.text for turn in turns] == [
        *(f"{kind} {number}" for number in range(1, 6) for kind in ("question", "answer")),
        "and now?",
    ]


async def test_conversation_is_read_as_far_back_as_it_may_be(database: Database) -> None:
    journal = Journal(database, "me", 60)
    last = await add_turns(journal, EARLIER_RUNS + 2)
    turns = await read_turns(request("and now?", last), "default", journal)
    assert turns[0].text == "question 3"
    assert len(turns) == 2 * EARLIER_RUNS + 1


async def test_conversation_has_the_answer_so_far_of_an_active_run(database: Database) -> None:
    journal = Journal(database, "me", 60)
    first = RunEvent(run_id="active", sequence=1, run_accepted=RunAccepted(spec=RunSpec(request="question")))
    await journal.accept(NewRun("active", "c", "", "", 9e9, Caller(tenant="default"), "", "d", first))
    answer = RunEvent(run_id="active", sequence=2, answer_chunk=AnswerChunk(text="so far"))
    await journal.append("active", 1, [answer], RUN_STATE_RUNNING)
    turns = await read_turns(request("and now?", "active"), "default", journal)
    assert [turn.text for turn in turns] == ["question", "so far", "and now?"]


async def test_large_conversation_is_read_page_by_page(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.journal.runs.PAGE_BYTES", 10)
    recording = RecordingDatabase(database)
    journal = Journal(recording, "me", 60)
    last = await add_turns(journal, 3)
    turns = await read_turns(request("and now?", last), "default", journal)
    assert recording.reads > 1
    assert [turn.text for turn in turns[:-1]] == [
        f"{kind} {number}" for number in range(1, 4) for kind in ("question", "answer")
    ]


async def test_conversation_of_another_tenant_is_not_read(database: Database) -> None:
    journal = Journal(database, "me", 60)
    last = await add_turns(journal, 2, tenant="other")
    assert [turn.text for turn in await read_turns(request("and now?", last), "default", journal)] == ["and now?"]
