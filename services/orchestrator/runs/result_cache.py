"""Reuse of results of earlier runs of a tenant, by model, commit, task, parameters and inputs."""

import hashlib

import structlog

from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from protos.hugginggpt.v1.task_pb2 import DETERMINISM_EXACT, DETERMINISM_NUMERIC, TaskSpec
from services.common.artifacts import ArtifactStore
from services.common.errors import Unavailable
from services.orchestrator.journal import Journal
from services.orchestrator.journal.artifact_digests import digests
from services.orchestrator.journal.tables import Memo
from services.orchestrator.runs.run_log import RunLog

log = structlog.get_logger(__name__)

_REPEATABLE = frozenset({DETERMINISM_EXACT, DETERMINISM_NUMERIC})


class ResultCache:
    """Results that can replace a call: of deterministic tasks, by models of a known commit.

    Args:
        journal: stores the results.
        store: stores the artifacts they refer to.
    """

    def __init__(self, journal: Journal, store: ArtifactStore) -> None:
        self._journal = journal
        self._store = store

    async def lookup(self, run: RunLog, spec: TaskSpec, by: Candidate, digest: str) -> TaskResult | None:
        """The stored result of this call with all its artifacts; None if there is none or the run bypasses reuse."""
        if run.fold.run.spec.bypass_memo or not _is_reusable(spec, by):
            return None
        try:
            known = await self._journal.memo(run.caller.tenant, _key(by, digest))
            return known if known and await self._is_complete(run.caller.tenant, known) else None
        except Unavailable as error:
            log.warning("earlier results unavailable", error=error.message)
            return None

    async def _is_complete(self, tenant: str, result: TaskResult) -> bool:
        """Whether its artifacts still exist: an operator may have emptied the store."""
        return all([await self._store.contains(tenant, sha256) for sha256 in set(digests(result))])


def memo(run: RunLog, spec: TaskSpec, result: TaskResult) -> Memo | None:
    """A result to store for reuse; None if it must not be reused."""
    if not _is_reusable(spec, result.by):
        return None
    known = TaskResult(made_by_run=run.id)
    known.MergeFrom(result)
    return Memo(run.caller.tenant, _key(result.by, result.input_digest), known)


def _is_reusable(spec: TaskSpec, by: Candidate) -> bool:
    return spec.determinism in _REPEATABLE and bool(by.revision)


def _key(by: Candidate, digest: str) -> str:
    return hashlib.sha256(f"{by.expert}\0{by.model_id}\0{by.revision}\0{digest}".encode()).hexdigest()
