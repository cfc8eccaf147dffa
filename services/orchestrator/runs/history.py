"""Reads stored runs: their events, their state, and the conversation that they continue."""

from collections.abc import AsyncGenerator, Iterable, Iterator

import structlog

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.artifact_pb2 import NamedValue
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import ROLE_ASSISTANT, ROLE_USER, Run, Turn
from services.common.errors import CorruptData
from services.orchestrator.journal import Journal
from services.orchestrator.journal.runs import RunRow, StoredRun, unreadable

log = structlog.get_logger(__name__)

EARLIER_RUNS = 20
"""Number of earlier runs that a conversation includes."""


async def read_turns(run: Run, tenant: str, journal: Journal) -> list[Turn]:
    """All turns up to the run's request, oldest first; runs that are deleted or cannot be read are omitted.

    Raises:
        Unavailable: the journal is unavailable.
    """
    earlier: list[Turn] = []
    parent_id = run.spec.parent_run_id
    for stored in await journal.conversation(parent_id, tenant, EARLIER_RUNS) if parent_id else ():
        try:
            previous = await _current_state(stored, journal)
        except CorruptData:
            log.exception("conversation turn skipped: its run cannot be read", run_id=stored.row.id)
            continue
        earlier[:0] = [_request_turn(previous), _answer_turn(previous)]
    return [*run.spec.history, *earlier, _request_turn(run)]


async def read_state(stored: StoredRun, journal: Journal) -> Run:
    """The state of a run; only its row and how it ended if its events cannot be read.

    Raises:
        NotFound: RUN, it was deleted meanwhile.
        Unavailable: the journal is unavailable.
    """
    try:
        return await _current_state(stored, journal)
    except CorruptData:
        row = await journal.row(stored.row.id, stored.row.tenant)  # the last event may have been written meanwhile
        return _summarize(row, await journal.last_event(row))


async def _current_state(stored: StoredRun, journal: Journal) -> Run:
    """The state of a run: its snapshot, with the events after it.

    Raises:
        CorruptData: the events cannot be decoded, or are not a valid run.
        Unavailable: the journal is unavailable.
    """
    fold = RunFold.resume(stored.snapshot) if stored.snapshot else RunFold()
    while fold.run.last_sequence < stored.row.last_sequence:
        events = await journal.events(stored.row.id, fold.run.last_sequence)
        if not events:
            raise unreadable(stored.row.id)
        _apply(events, fold, stored.row.id)
    return fold.snapshot()


async def read_events(run_id: str, journal: Journal) -> list[RunEvent]:
    """All stored events of a run.

    Raises:
        CorruptData: one of them cannot be decoded.
    """
    events: list[RunEvent] = []
    while not (events and events[-1].HasField("run_ended")) and (page := await journal.events(run_id, len(events))):
        events += page
    return events


async def read_events_after(run_id: str, after: int, tenant: str, journal: Journal) -> AsyncGenerator[RunEvent]:
    """Stored events numbered above `after`; if one cannot be decoded, only the last event of an ended run follows.

    Raises:
        NotFound: RUN.
        CorruptData: the last one cannot be decoded either.
    """
    await journal.row(run_id, tenant)
    try:
        while page := await journal.events(run_id, after):
            for event in page:
                yield event
            after = page[-1].sequence
    except CorruptData:
        row = await journal.row(run_id, tenant)
        if row.has_ended and row.last_sequence > after:
            last = await journal.last_event(row)
            if last is None:
                raise
            yield last


async def read_fold(run_id: str, journal: Journal) -> RunFold:
    """Folds a run's stored events.

    Raises:
        CorruptData: they cannot be decoded, or are not a valid run.
        Unavailable: the journal is unavailable.
    """
    fold = RunFold()
    _apply(await read_events(run_id, journal), fold, run_id)
    return fold


def _apply(events: Iterable[RunEvent], fold: RunFold, run_id: str) -> None:
    try:
        for event in events:
            fold.apply(event)
    except Exception as error:
        raise unreadable(run_id) from error


def _summarize(row: RunRow, last: RunEvent | None) -> Run:
    """The state of a run whose events cannot be read, from its journal row and last event.

    Args:
        row: the run's journal row.
        last: its last event, if that can be decoded.
    """
    run = Run(run_id=row.id, state=row.state, conversation_id=row.conversation_id, last_sequence=row.last_sequence)
    run.spec.request = row.request
    run.create_time.FromNanoseconds(int(row.created * 1e9))
    run.deadline.FromNanoseconds(int(row.deadline * 1e9))
    if last and last.HasField("run_ended"):
        run.usage.CopyFrom(last.run_ended.usage)
        run.end_time.CopyFrom(last.time)
        if last.run_ended.HasField("failure"):
            run.failure.CopyFrom(last.run_ended.failure)
    return run


def _request_turn(run: Run) -> Turn:
    return Turn(role=ROLE_USER, text=run.spec.request, attachments=run.spec.inputs, run_id=run.run_id)


def _answer_turn(run: Run) -> Turn:
    return Turn(role=ROLE_ASSISTANT, text=run.answer, attachments=_output_files(run), run_id=run.run_id)


def _output_files(run: Run) -> Iterator[NamedValue]:
    for status in run.tasks:
        for port, value in status.result.outputs.items():
            if value.HasField("artifact"):
                yield NamedValue(name=f"task{status.task.id}.{port}", value=value)
