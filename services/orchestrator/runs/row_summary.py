"""Summarizes runs whose events cannot be read."""

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import Run
from services.orchestrator.journal.tables import Row


def summarize(row: Row, last: RunEvent | None) -> Run:
    """Returns the state of a run from its journal row and last event.

    Args:
        row: the run's journal row.
        last: its last event, if that can be decoded.
    """
    run = Run(run_id=row.id, state=row.state, conversation_id=row.conversation_id, last_sequence=row.seq)
    run.spec.request = row.request
    run.create_time.FromNanoseconds(int(row.created * 1e9))
    run.deadline.FromNanoseconds(int(row.deadline * 1e9))
    if last and last.HasField("run_ended"):
        run.usage.CopyFrom(last.run_ended.usage)
        run.end_time.CopyFrom(last.time)
        if last.run_ended.HasField("failure"):
            run.failure.CopyFrom(last.run_ended.failure)
    return run
