"""Results of earlier runs of the same tenant, found again by model, commit, task, parameters and inputs."""

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
from services.orchestrator.runs.run_log import LiveRun

log = structlog.get_logger(__name__)

_REPEATABLE = frozenset({DETERMINISM_EXACT, DETERMINISM_NUMERIC})


class Memory:
    """What may stand in for a call: results of tasks that give the same every time, by models whose commit is known.

    Args:
        journal: where they are kept.
        store: where the artifacts are to which they refer.
    """

    def __init__(self, journal: Journal, store: ArtifactStore) -> None:
        self._journal = journal
        self._store = store

    async def recalled(self, run: LiveRun, spec: TaskSpec, by: Candidate, digest: str) -> TaskResult | None:
        """The result that calling this model would give, if it is known, all of it, and the run wants such."""
        if run.view.run.spec.bypass_memo or not _is_kept(spec, by):
            return None
        try:
            known = await self._journal.memo(run.caller.tenant, _key(by, digest))
            return known if known and await self._whole(run.caller.tenant, known) else None
        except Unavailable as error:
            log.warning("earlier results cannot be looked up", error=error.message)
            return None

    async def _whole(self, tenant: str, result: TaskResult) -> bool:
        """Whether what it refers to is still there: others than this program may empty a store."""
        return all([await self._store.contains(tenant, sha256) for sha256 in set(digests(result))])


def memo(run: LiveRun, spec: TaskSpec, result: TaskResult) -> Memo | None:
    """A result as it is found again; None if it must not be."""
    if not _is_kept(spec, result.by):
        return None
    known = TaskResult(made_by_run=run.id)
    known.MergeFrom(result)
    return Memo(run.caller.tenant, _key(result.by, result.input_digest), known)


def _is_kept(spec: TaskSpec, by: Candidate) -> bool:
    return spec.determinism in _REPEATABLE and bool(by.revision)


def _key(by: Candidate, digest: str) -> str:
    return hashlib.sha256(f"{by.expert}\0{by.model_id}\0{by.revision}\0{digest}".encode()).hexdigest()
