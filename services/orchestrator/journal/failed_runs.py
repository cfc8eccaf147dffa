"""Ends a run that cannot be continued."""

import time

from protos.hugginggpt.v1.batch_pb2 import BatchItem
from protos.hugginggpt.v1.event_pb2 import RunEnded, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_FAILED
from services.common.database import Operation, Query, Steps
from services.orchestrator.journal import statements
from services.orchestrator.journal.errors import LeaseLost
from services.orchestrator.journal.row_writers import event_rows


def fail_run(
    sql: statements.Statements, run_id: str, fence: int, lease_seconds: float, failure: Failure
) -> Operation[None]:
    """Ends a run as FAILED after its last event, without reading its events.

    Raises:
        LeaseLost: another orchestrator owns it, or it has ended.
    """
    ending = RunEvent(run_id=run_id, run_ended=RunEnded(state=RUN_STATE_FAILED, failure=failure))
    ending.time.FromNanoseconds(time.time_ns())
    item = BatchItem(failure=failure).SerializeToString()

    def operation() -> Steps[None]:
        for seq, last, batch_id, index in (yield Query(statements.POSITION, (run_id,))):
            ending.sequence = max(seq, last) + 1
            inserts = [*event_rows(run_id, [ending])]
            if batch_id:
                inserts += [(statements.BATCH_RUNS, [(batch_id, index, run_id, RUN_STATE_FAILED, time.time(), item)])]
            values = (ending.sequence, RUN_STATE_FAILED, lease_seconds, run_id, fence)
            if (yield Query(sql.fail, values, inserts)):
                return
        raise LeaseLost(f"another orchestrator owns run {run_id}")

    return operation
