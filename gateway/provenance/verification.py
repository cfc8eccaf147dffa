"""Doing a run's deterministic tasks again, as a run of its own."""

from gateway.catalog import Catalogue
from gateway.provenance import rerun, run_account
from gateway.provenance.comparison import Comparing, stopped, verification
from gateway.provenance.record import VERSION
from gateway.provenance.rerun import Revisions
from gateway.provenance.rerun_terms import Hurdle, Terms
from gateway.provenance.run_account import Account, TaskAccount
from gateway.runs import ENDED, Runs
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, Caller
from protos.hugginggpt.v1.gateway_pb2 import ListModelsRequest
from protos.hugginggpt.v1.record_pb2 import VERIFICATION_OUTCOME_GONE, Verification
from services.common.artifacts import ArtifactStore
from services.common.call_context import current, use_caller
from services.common.errors import NotFound


class Verifying:
    """Verifies runs of the current caller's tenant.

    Args:
        runs: reads and starts them.
        catalogue: knows which models there are.
        store: knows which files there are.
    """

    def __init__(self, runs: Runs, catalogue: Catalogue, store: ArtifactStore) -> None:
        self._runs = runs
        self._catalogue = catalogue
        self._store = store

    async def begin(self, run_id: str) -> Verification:
        """Starts the run that does it again; where nothing can be done again all is known at once.

        Raises:
            NotFound: RUN.
            FailedPrecondition: RUNNING, it has not ended.
            Overloaded: no more runs can be taken.
        """
        told = await run_account.read(self._runs, run_id)
        there = rerun.revisions((await self._catalogue.models(ListModelsRequest())).models)
        hurdles = {number: await self._hurdle(task, told, there) for number, task in told.tasks.items()}
        stops = {number: hurdle for number, hurdle in hurdles.items() if hurdle}
        tasks = [task for number, task in told.tasks.items() if number not in stops]
        if not tasks:
            return verification(run_id, "", [stopped(told.tasks[number], hurdle) for number, hurdle in stops.items()])
        with use_caller(_as_strict(told)):
            feed = await self._runs.start(rerun.spec(told, tasks, stops))
        feed.stop()
        return Verification(version=VERSION, run_id=run_id, again_run_id=feed.run_id)

    async def outcome(self, run_id: str, again_id: str) -> Verification:
        """What came of it; nothing is known before that run has ended.

        Raises:
            NotFound: RUN; VERIFICATION, the second is no verification of the first.
        """
        doing = await self._runs.get(again_id)
        terms = Terms.of(doing.spec)
        if terms is None or terms.run_id != run_id:
            remedy = f"start one: hugginggpt verify {run_id}"
            raise NotFound(f"run {again_id} does not verify run {run_id}", reason="VERIFICATION", remedy=remedy)
        if doing.state not in ENDED:
            return Verification(version=VERSION, run_id=run_id, again_run_id=again_id)
        before, after = [await run_account.read(self._runs, each) for each in (run_id, again_id)]
        return await Comparing(self._store, current().tenant).compared(before, after)

    async def _hurdle(self, task: TaskAccount, told: Account, there: Revisions) -> Hurdle | None:
        return rerun.incomparable(task) or rerun.missing_model(task, there) or await self._missing_file(task, told)

    async def _missing_file(self, task: TaskAccount, told: Account) -> Hurdle | None:
        for port, sha256 in rerun.artifacts_of(task, told):
            if not await self._store.contains(current().tenant, sha256):
                return Hurdle(VERIFICATION_OUTCOME_GONE, f"the file that it was given as {port} is not there any more")
        return None


def _as_strict(told: Account) -> Caller:
    """Whoever asks now, under the policy of then if that was the stricter."""
    who = Caller()
    who.CopyFrom(current())
    if told.accepted.caller.policy == DATA_POLICY_LOCAL:
        who.policy = DATA_POLICY_LOCAL
    return who
