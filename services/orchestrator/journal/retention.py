"""What is not kept for ever: ended runs, results to reuse, and artifacts that nothing kept refers to.

A conversation goes as a whole, when its last run is old enough: an earlier turn is part of what a later one was asked.
A batch goes with its items and their runs, none before; pipelines stay until somebody removes them.
Artifacts go in the pass after the one that removed what referred to them, so that whoever is just taking up a result
has long said so; and never within a day of being written, for what refers to them may still be on its way here.
"""

# ruff: noqa: S608  # SQL is put together from constants; values are always parameters

import asyncio
import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Self
from uuid import uuid4

import structlog

from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.artifacts import ArtifactStore
from services.common.database import Database, Query, Rows, Steps
from services.common.supervision import supervise
from services.orchestrator.journal.artifact_digests import digests
from services.orchestrator.journal.batch_removal import UNFINISHED_SECONDS, BatchRemoval
from services.orchestrator.journal.row_readers import decoded
from services.orchestrator.journal.statements import ALIVE, REFERENCES
from services.orchestrator.journal.tables import IDEMPOTENCY_SECONDS

log = structlog.get_logger(__name__)

PASS_SECONDS = 3600.0
"""From one pass to the next, of whichever process."""
FIRST_SECONDS = 300.0
"""From the start to the first pass."""
ARTIFACT_SECONDS = 24 * 3600.0
"""How long an artifact is left alone after it was last written."""

_BATCH = 50
"""Rows of one transaction: others wait for it."""

_TURN = (
    "INSERT INTO duties (name, owner, until) VALUES ('collect', ?, {now} + ?)"
    " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until"
    " WHERE duties.until < {now} OR duties.owner = excluded.owner RETURNING name"
)
_NAMED = (
    "INSERT INTO duties (name, owner, until) VALUES ('journal', ?, 0)"
    " ON CONFLICT (name) DO UPDATE SET owner = duties.owner RETURNING owner"
)
_UNREFERENCED = "SELECT run_id, seq, event FROM events WHERE referenced = 0 ORDER BY run_id, seq LIMIT ?"
_REFERENCED = "UPDATE events SET referenced = 1 WHERE run_id = ? AND seq = ? RETURNING seq"
_REFERRED = (
    "SELECT sha256 FROM artifact_references JOIN runs ON runs.id = run_id WHERE tenant = ? AND sha256 {among}"
    " UNION SELECT sha256 FROM memo_references WHERE tenant = ? AND sha256 {among}"
    " UNION SELECT sha256 FROM holds WHERE tenant = ? AND sha256 {among}"
)
_OLD_RUNS = (
    "DELETE FROM runs WHERE id IN (SELECT id FROM runs AS old"
    f" WHERE created < ? AND batch_id = '' AND NOT ({ALIVE}) AND lease_until < ? AND NOT EXISTS"
    f" (SELECT 1 FROM runs AS later WHERE later.conversation_id = old.conversation_id AND later.tenant = old.tenant"
    f"  AND (later.{ALIVE} OR later.lease_until >= ?)) LIMIT ?) RETURNING id"
)
"""The lease of an ended run began with its last event."""
_OLD_MEMOS = (
    "DELETE FROM memos WHERE created < ? AND (tenant, digest) IN"
    " (SELECT tenant, digest FROM memos WHERE created < ? LIMIT ?) RETURNING digest"
)
_OLD_KEYS = (
    "DELETE FROM idempotency WHERE created < ? AND (tenant, key) IN"
    " (SELECT tenant, key FROM idempotency WHERE created < ? LIMIT ?) RETURNING key"
)
"""Asks twice for the age: who takes a key anew meanwhile is waited for, and then the key is young."""
_OLD_COMMANDS = (
    "DELETE FROM commands WHERE id IN (SELECT commands.id FROM commands JOIN runs ON runs.id = run_id"
    f" WHERE NOT ({ALIVE}) LIMIT ?) RETURNING id"
)


class Retention:
    """Removes what is not to be kept any longer: by one process at a time, a little at a time, while it is entered.

    Args:
        database: the journal's.
        store: where the artifacts are.
        owner: which process this is.
        keep_seconds: how long ended runs and results to reuse are kept; 0 is for ever.
    """

    def __init__(self, database: Database, store: ArtifactStore, owner: str, keep_seconds: float) -> None:
        self._database = database
        self._store = store
        self._owner = owner
        self._keep_seconds = keep_seconds
        self._batches = BatchRemoval(database)
        self._turn_sql = _TURN.format(now=database.dialect.now)
        self._referred_sql = _REFERRED.format(among=database.dialect.among)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._collect_repeatedly(), name="retention")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def collect(self) -> None:
        """One pass, if it is this process's turn.

        Raises:
            Unavailable: the journal or the store does not answer.
        """
        if not await self._turn():
            return
        await self._note_references()
        await self._collect_artifacts()
        now = time.time()
        await self._thin(_OLD_KEYS, *(now - IDEMPOTENCY_SECONDS,) * 2)
        await self._thin(_OLD_COMMANDS)
        before = now - self._keep_seconds if self._keep_seconds else 0.0
        await self._batches.thin(before, now - UNFINISHED_SECONDS)
        if self._keep_seconds:
            await self._thin(_OLD_RUNS, before, before, before)
            await self._thin(_OLD_MEMOS, before, before)

    async def _collect_repeatedly(self) -> None:
        await asyncio.sleep(FIRST_SECONDS)
        await supervise(self._passes, name="retention", pause=PASS_SECONDS)

    async def _passes(self) -> None:
        while True:
            await self.collect()
            await asyncio.sleep(PASS_SECONDS)

    async def _turn(self) -> bool:
        """Whether no other process collects, nor has done so in the last hour; it is this one's for the next."""
        return bool(await self._written(self._turn_sql, self._owner, PASS_SECONDS))

    async def _thin(self, sql: str, *values: object) -> None:
        """Deletes what a statement finds, a batch at a time."""
        while len(await self._written(sql, *values, _BATCH)) == _BATCH and await self._turn():
            pass

    async def _written(self, sql: str, *values: object) -> Rows:
        def operation() -> Steps[Rows]:
            return (yield Query(sql, values, alone=True))

        return await self._database.write(operation)

    async def _note_references(self) -> None:
        """Notes what events refer to that were kept by a program that did not."""
        while events := await self._database.read(_UNREFERENCED, _BATCH):
            await self._database.write(partial(_noted, events))

    async def _collect_artifacts(self) -> None:
        """Removes artifacts that nothing refers to, if no other journal shares the store."""
        if not await self._alone():
            return
        before = time.time() - ARTIFACT_SECONDS
        await self._store.discard_staged(last_written_before=before)
        removed = 0
        async for page in self._store.written_before(before):
            for tenant in sorted({tenant for tenant, _ in page}):
                old = [sha256 for whose, sha256 in page if whose == tenant]
                for sha256 in set(old) - await self._referred(tenant, old):
                    if not await self._referred(tenant, [sha256]):  # still
                        removed += await self._store.discard(tenant, sha256, last_written_before=before)
            if not await self._turn():
                break
        log.info("artifacts collected", removed=removed)

    async def _referred(self, tenant: str, sha256s: Sequence[str]) -> set[str]:
        texts = self._database.dialect.texts(sha256s)
        return {sha256 for (sha256,) in await self._database.read(self._referred_sql, *(tenant, texts) * 3)}

    async def _alone(self) -> bool:
        """Whether the store is this journal's: the first to collect there writes its name into it."""
        ((name,),) = await self._written(_NAMED, uuid4().hex)
        notes = self._store.key_values("journals")
        names = await notes.all()
        if not names:
            await notes.put(name, b"")
        elif set(names) != {name}:
            log.warning(
                "no artifact is collected: the store is another journal's",
                remedy="give each journal a store of its own, or remove _journals/ from the store if the other is gone",
            )
            return False
        return True


def _noted(events: Rows) -> Steps[None]:
    for run_id, number, content in events:
        event = decoded(RunEvent, content) or RunEvent()  # else one that cannot be decoded stops every pass
        referred = [(run_id, sha256) for sha256 in sorted(set(digests(event)))]
        yield Query(_REFERENCED, (run_id, number), [(REFERENCES, referred)] if referred else [])
