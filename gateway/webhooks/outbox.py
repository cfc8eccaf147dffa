"""Queue of webhook notifications, written in the transaction that records the end of a run or batch."""

import secrets
from datetime import UTC, datetime
from typing import Any

from gateway.json_encoder import dumps, encode
from protos.hugginggpt.internal.v1.orchestrator_pb2 import EndedBatch, EndedRun
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common.database import Database, Query, Steps


class Outbox:
    """Adds deliveries to the queue."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def earliest_webhook(self) -> float | None:
        """Unix time from which ends are relevant: creation of the oldest active webhook; None if there is none."""
        ((first,),) = await self._database.read("SELECT min(created) FROM webhooks WHERE ended IS NULL")
        return None if first is None else float(first)

    def add(self, run: EndedRun) -> Steps[None]:
        """Queues a delivery for each webhook of the run's tenant; batch items are reported by their batch."""
        if run.caller.priority != PRIORITY_BATCH:
            yield from self._add(run, run_payload(run), run_id=run.run_id)

    def add_batch(self, batch: EndedBatch) -> Steps[None]:
        """Queues a delivery for each webhook of the batch's tenant."""
        yield from self._add(batch, batch_payload(batch), batch_id=batch.batch_id)

    def _add(
        self, completion: EndedRun | EndedBatch, payload: str, *, run_id: str = "", batch_id: str = ""
    ) -> Steps[None]:
        ended, now = completion.end_time.ToMicroseconds() / 1e6, self._database.dialect.now
        select = "SELECT id FROM webhooks WHERE tenant = ? AND ended IS NULL AND created <= ?"
        for (webhook_id,) in (yield Query(select, (completion.caller.tenant, ended))):
            insert = (
                "INSERT INTO deliveries "  # noqa: S608  # of constants
                "(id, webhook_id, run_id, batch_id, policy, payload, created, state, attempts, due, outcome) "
                f"VALUES (?, ?, ?, ?, ?, ?, {now}, 'waiting', 0, {now}, '')"
            )
            delivery_id = f"msg_{secrets.token_hex(12)}"
            yield Query(insert, (delivery_id, webhook_id, run_id, batch_id, completion.caller.policy, payload))


def run_payload(run: EndedRun) -> str:
    """Body of a run notification: id, state and usage, no content."""
    path = f"/v1/runs/{run.run_id}"
    return _body("run.ended", run, {"run": path, "events": f"{path}/events"})


def batch_payload(batch: EndedBatch) -> str:
    """Body of a batch notification: id, state and counts, no content and no item names."""
    path = f"/v1/pipeline-batches/{batch.batch_id}"
    return _body("batch.ended", batch, {"batch": path, "results": f"{path}/results", "summary": f"{path}/summary"})


def _body(type_: str, completion: EndedRun | EndedBatch, links: dict[str, str]) -> str:
    details: dict[str, Any] = encode(completion)
    del details["caller"]
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return dumps({"type": type_, "timestamp": now, "data": {**details, "links": links}}).decode()
