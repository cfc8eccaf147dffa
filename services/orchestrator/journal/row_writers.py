"""Builds rows of events and stored results, with the artifacts they refer to."""

import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import Run
from services.common.database import InsertInto
from services.orchestrator.journal.artifact_digests import digests, may_refer
from services.orchestrator.journal.statements import EVENTS, MEMO_REFERENCES, MEMOS, REFERENCES
from services.orchestrator.journal.tables import Memo

Insert: TypeAlias = tuple[InsertInto, Sequence[Sequence[Any]]]
Inserts: TypeAlias = Sequence[Insert]

SNAPSHOT_BYTES = 8 * 1024 * 1024
"""Largest snapshot that is stored: reading a larger one would take too much memory at once."""


def event_rows(run_id: str, events: Sequence[RunEvent]) -> Inserts:
    """Rows of events and their references."""
    encoded = [event.SerializeToString() for event in events]
    rows = [(run_id, event.sequence, content, 1) for event, content in zip(events, encoded, strict=True)]
    referring = [event for event, content in zip(events, encoded, strict=True) if may_refer(content)]
    if referred := {digest for event in referring for digest in digests(event)}:
        return [(EVENTS, rows), (REFERENCES, [(run_id, digest) for digest in sorted(referred)])]
    return [(EVENTS, rows)]


def memo_rows(memos: Sequence[Memo]) -> Inserts:
    """Rows of stored results and their references, sorted so that two transactions cannot deadlock."""
    if not memos:
        return []
    now, by_key = time.time(), {(memo.tenant, memo.digest): memo.result for memo in memos}
    ordered = sorted(by_key)
    rows = [(*key, by_key[key].SerializeToString(), now, by_key[key].made_by_run) for key in ordered]
    referred = [(*key, digest) for key in ordered for digest in sorted(set(digests(by_key[key])))]
    return [(MEMOS, rows), (MEMO_REFERENCES, referred)] if referred else [(MEMOS, rows)]


def encoded_snapshot(run: Run | None) -> bytes | None:
    """The snapshot to store; None if there is none or it is too large, so that readers fold the events instead."""
    encoded = run.SerializeToString() if run else b""
    return encoded if 0 < len(encoded) <= SNAPSHOT_BYTES else None
