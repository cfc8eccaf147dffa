"""A conversation is a chain of runs; its turns are what was asked, what was answered, and the files of both."""

from collections.abc import Iterator

from protos.hugginggpt.v1.types_pb2 import ROLE_ASSISTANT, ROLE_USER, NamedValue, Run, RunEvent, Turn
from services.orchestrator.journal import Journal
from services.orchestrator.view import RunView
from services.runtime.errors import NotFound

EARLIER_RUNS = 20
"""How far back a conversation is read."""


async def turns_of(run: Run, parent_id: str, tenant: str, journal: Journal) -> list[Turn]:
    """All turns up to and including the run's request, oldest first; of what has been deleted there are none.

    Raises:
        Unavailable: the journal does not answer.
    """
    earlier: list[Turn] = []
    for _ in range(EARLIER_RUNS):
        if not parent_id:
            break
        try:
            row = await journal.row(parent_id, tenant)
        except NotFound:
            break
        parent = RunView(await events_of(parent_id, journal))
        earlier[:0] = [_question(parent.run), _answer(parent)]
        parent_id = row.parent_id
    return [*run.spec.history, *earlier, _question(run)]


async def events_of(run_id: str, journal: Journal) -> list[RunEvent]:
    """All kept events of a run."""
    events: list[RunEvent] = []
    while not (events and events[-1].HasField("run_ended")) and (page := await journal.events(run_id, len(events))):
        events += page
    return events


def _question(run: Run) -> Turn:
    return Turn(role=ROLE_USER, text=run.spec.request, attachments=run.spec.inputs, run_id=run.run_id)


def _answer(view: RunView) -> Turn:
    return Turn(role=ROLE_ASSISTANT, text=view.answer, attachments=_made(view.run), run_id=view.run.run_id)


def _made(run: Run) -> Iterator[NamedValue]:
    for status in run.tasks:
        for port, value in status.result.outputs.items():
            if value.HasField("artifact"):
                yield NamedValue(name=f"task{status.task.id}.{port}", value=value)
