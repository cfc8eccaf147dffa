"""A conversation is a chain of runs; its turns are what was asked, what was answered, and the files of both."""

from collections.abc import AsyncGenerator, Iterator

import structlog

from protos.hugginggpt.v1.artifact_pb2 import NamedValue
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import ROLE_ASSISTANT, ROLE_USER, Run, Turn
from services.common.errors import CorruptData
from services.orchestrator.journal import Journal
from services.orchestrator.journal.errors import unreadable
from services.orchestrator.runs.run_state import RunView

log = structlog.get_logger(__name__)

EARLIER_RUNS = 20
"""How far back a conversation is read."""


async def turns_of(run: Run, parent_id: str, tenant: str, journal: Journal) -> list[Turn]:
    """All turns up to and including the run's request, oldest first; none of what is deleted or cannot be read.

    Raises:
        Unavailable: the journal does not answer.
    """
    earlier: list[Turn] = []
    for encoded in await journal.conversation(parent_id, tenant, EARLIER_RUNS) if parent_id else ():
        try:
            view = RunView(map(RunEvent.FromString, encoded))
        except Exception:
            log.exception("earlier turn left out: its run cannot be read", run_id=run.run_id)
            continue
        earlier[:0] = [_question(view.run), _answer(view)]
    return [*run.spec.history, *earlier, _question(run)]


async def events_of(run_id: str, journal: Journal) -> list[RunEvent]:
    """All kept events of a run.

    Raises:
        CorruptData: one of them cannot be decoded.
    """
    events: list[RunEvent] = []
    while not (events and events[-1].HasField("run_ended")) and (page := await journal.events(run_id, len(events))):
        events += page
    return events


async def events_after(run_id: str, after: int, tenant: str, journal: Journal) -> AsyncGenerator[RunEvent]:
    """Events stored by now; where one cannot be decoded, only the last one follows, once the run has ended.

    Raises:
        NotFound: RUN.
        CorruptData: the last one cannot be decoded, either.
    """
    await journal.row(run_id, tenant)
    try:
        while page := await journal.events(run_id, after):
            for event in page:
                yield event
            after = page[-1].sequence
    except CorruptData:
        row = await journal.row(run_id, tenant)
        if row.ended and row.seq > after:
            last = await journal.last_event(row)
            if last is None:
                raise
            yield last


async def view_of(run_id: str, journal: Journal) -> RunView:
    """A run as its events have it.

    Raises:
        CorruptData: they cannot be decoded, or lead to no state.
        Unavailable: the journal does not answer.
    """
    events = await events_of(run_id, journal)
    try:
        return RunView(events)
    except Exception as error:
        raise unreadable(run_id) from error


def _question(run: Run) -> Turn:
    return Turn(role=ROLE_USER, text=run.spec.request, attachments=run.spec.inputs, run_id=run.run_id)


def _answer(view: RunView) -> Turn:
    return Turn(role=ROLE_ASSISTANT, text=view.answer, attachments=_made(view.run), run_id=view.run.run_id)


def _made(run: Run) -> Iterator[NamedValue]:
    for status in run.tasks:
        for port, value in status.result.outputs.items():
            if value.HasField("artifact"):
                yield NamedValue(name=f"task{status.task.id}.{port}", value=value)
