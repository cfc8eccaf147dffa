"""What is to be told of an end: written in the transaction that first sees it, so once, whoever sees it."""

import secrets
from datetime import UTC, datetime
from typing import Any

from gateway.json_encoder import dumps, encode
from protos.hugginggpt.internal.v1.orchestrator_pb2 import EndedBatch, EndedRun
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common.database import Database, Query, Steps


class Outbox:
    """Deliveries to be made."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def since(self) -> float | None:
        """From when on ends are of interest, in seconds since the epoch; None: nobody wants to be told."""
        ((first,),) = await self._database.read("SELECT min(created) FROM webhooks WHERE ended IS NULL")
        return None if first is None else float(first)

    def add(self, run: EndedRun) -> Steps[None]:
        """One delivery for each of the tenant's webhooks that was there; items of a batch are told of by the batch."""
        if run.caller.priority != PRIORITY_BATCH:
            yield from self._add(run, of_run(run), run_id=run.run_id)

    def add_batch(self, batch: EndedBatch) -> Steps[None]:
        """One delivery for each of the tenant's webhooks that was there."""
        yield from self._add(batch, of_batch(batch), batch_id=batch.batch_id)

    def _add(self, end: EndedRun | EndedBatch, payload: str, *, run_id: str = "", batch_id: str = "") -> Steps[None]:
        ended, now = end.end_time.ToMicroseconds() / 1e6, self._database.dialect.now
        select = "SELECT id FROM webhooks WHERE tenant = ? AND ended IS NULL AND created <= ?"
        for (webhook_id,) in (yield Query(select, (end.caller.tenant, ended))):
            insert = (
                "INSERT INTO deliveries "  # noqa: S608  # of constants
                "(id, webhook_id, run_id, batch_id, policy, payload, created, state, attempts, due, outcome) "
                f"VALUES (?, ?, ?, ?, ?, ?, {now}, 'waiting', 0, {now}, '')"
            )
            delivery_id = f"msg_{secrets.token_hex(12)}"
            yield Query(insert, (delivery_id, webhook_id, run_id, batch_id, end.caller.policy, payload))


def of_run(run: EndedRun) -> str:
    """The body that is sent: what ended and how, no content."""
    place = f"/v1/runs/{run.run_id}"
    return _body("run.ended", run, {"run": place, "events": f"{place}/events"})


def of_batch(batch: EndedBatch) -> str:
    """The body that is sent: what ended and how, no content and no names of items."""
    place = f"/v1/batches/{batch.batch_id}"
    return _body("batch.ended", batch, {"batch": place, "results": f"{place}/results", "summary": f"{place}/summary"})


def _body(type_: str, end: EndedRun | EndedBatch, links: dict[str, str]) -> str:
    told: dict[str, Any] = encode(end)
    del told["caller"]
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return dumps({"type": type_, "timestamp": now, "data": {**told, "links": links}}).decode()
