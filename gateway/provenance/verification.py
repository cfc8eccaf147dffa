"""Verification of a run: reruns its deterministic tasks as a new run and compares the results."""

from gateway.core.catalog import Catalog
from gateway.core.runs import RunService
from gateway.provenance import rerun, run_account
from gateway.provenance.comparison import RunComparator, skipped_task, verification
from gateway.provenance.record import VERSION
from gateway.provenance.rerun import RerunTerms, Revisions, SkipReason
from gateway.provenance.run_account import Account, TaskAccount
from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, Caller
from protos.hugginggpt.v1.gateway_pb2 import ListModelsRequest
from protos.hugginggpt.v1.record_pb2 import VERIFICATION_OUTCOME_GONE, Verification
from services.common.artifacts import ArtifactStore
from services.common.call_context import current, use_caller
from services.common.errors import NotFound


class Verifier:
    """Verifies runs of the current caller's tenant.

    Args:
        runs: reads and starts runs.
        catalog: lists the available models.
        store: artifact store.
    """

    def __init__(self, runs: RunService, catalog: Catalog, store: ArtifactStore) -> None:
        self._runs = runs
        self._catalog = catalog
        self._store = store

    async def start(self, run_id: str) -> Verification:
        """Starts the rerun; returns the complete verification at once if no task can be rerun.

        Raises:
            NotFound: RUN.
            FailedPrecondition: RUNNING, the run has not ended.
            Overloaded: the orchestrator accepts no more runs.
        """
        account = await run_account.read(self._runs, run_id)
        available = rerun.revisions((await self._catalog.models(ListModelsRequest())).models)
        skip_reasons = {
            number: await self._skip_reason(task, account, available) for number, task in account.tasks.items()
        }
        skipped = {number: skip_reason for number, skip_reason in skip_reasons.items() if skip_reason}
        tasks = [task for number, task in account.tasks.items() if number not in skipped]
        if not tasks:
            return verification(
                run_id,
                "",
                [skipped_task(account.tasks[number], skip_reason) for number, skip_reason in skipped.items()],
            )
        with use_caller(_with_stricter_policy(account)):
            feed = await self._runs.start(rerun.spec(account, tasks, skipped))
        feed.stop()
        return Verification(version=VERSION, run_id=run_id, again_run_id=feed.run_id)

    async def get_result(self, run_id: str, again_id: str) -> Verification:
        """Returns the result of a rerun; without tasks until the rerun has ended.

        Raises:
            NotFound: RUN; VERIFICATION, the second run is not a rerun of the first.
        """
        rerun_run = await self._runs.get(again_id)
        terms = RerunTerms.read_from(rerun_run.spec)
        if terms is None or terms.run_id != run_id:
            remedy = f"start a verification with hugginggpt verify {run_id}"
            raise NotFound(
                f"run {again_id} is not a verification of run {run_id}", reason="VERIFICATION", remedy=remedy
            )
        if rerun_run.state not in ENDED_RUN_STATES:
            return Verification(version=VERSION, run_id=run_id, again_run_id=again_id)
        before, after = [await run_account.read(self._runs, each) for each in (run_id, again_id)]
        return await RunComparator(self._store, current().tenant).compare(before, after)

    async def _skip_reason(self, task: TaskAccount, account: Account, available: Revisions) -> SkipReason | None:
        return (
            rerun.incomparable_reason(task)
            or rerun.missing_model_reason(task, available)
            or await self._missing_file(task, account)
        )

    async def _missing_file(self, task: TaskAccount, account: Account) -> SkipReason | None:
        for port, sha256 in rerun.artifacts_of(task, account):
            if not await self._store.contains(current().tenant, sha256):
                return SkipReason(VERIFICATION_OUTCOME_GONE, f"the input file of port {port} no longer exists")
        return None


def _with_stricter_policy(account: Account) -> Caller:
    """The current caller with the stricter data policy of now and of the original run."""
    caller = Caller()
    caller.CopyFrom(current())
    if account.caller and account.caller.policy == DATA_POLICY_LOCAL:
        caller.policy = DATA_POLICY_LOCAL
    return caller
