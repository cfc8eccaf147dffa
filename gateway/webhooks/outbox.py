"""What is to be told of a run's end: written in the transaction that first sees it, so once, whoever sees it."""

import secrets
from datetime import UTC, datetime

from gateway.encoding import dumps, encode
from protos.hugginggpt.v1.orchestrator_pb2 import EndedRun
from protos.hugginggpt.v1.types_pb2 import PRIORITY_BATCH
from services.runtime.database import Database, Query, Steps

TYPE = "run.ended"


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
        if run.caller.priority == PRIORITY_BATCH:
            return
        ended = run.ended.ToMicroseconds() / 1e6
        select = "SELECT id FROM webhooks WHERE tenant = ? AND ended IS NULL AND created <= ?"
        now, payload = self._database.dialect.now, message(run)
        for (webhook_id,) in (yield Query(select, (run.caller.tenant, ended))):
            insert = (
                "INSERT INTO deliveries "  # noqa: S608  # of constants
                "(id, webhook_id, run_id, policy, payload, created, state, attempts, due, outcome) "
                f"VALUES (?, ?, ?, ?, ?, {now}, 'waiting', 0, {now}, '')"
            )
            delivery_id = f"msg_{secrets.token_hex(12)}"
            yield Query(insert, (delivery_id, webhook_id, run.run_id, run.caller.policy, payload))


def message(run: EndedRun) -> str:
    """The body that is sent: what ended and how, no content."""
    told = encode(run)
    del told["caller"]
    links = {"run": f"/v1/runs/{run.run_id}", "events": f"/v1/runs/{run.run_id}/events"}
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return dumps({"type": TYPE, "timestamp": now, "data": {**told, "links": links}}).decode()
