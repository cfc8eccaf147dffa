"""Verification of a run: reruns its deterministic tasks as a new run and compares the results."""

import asyncio
from collections.abc import Iterator

from gateway.core.catalog import Catalog
from gateway.core.runs import RunOperations
from gateway.provenance import media_difference, rerun, run_account, value_difference
from gateway.provenance.record import VERSION, code, model, value_digest
from gateway.provenance.rerun import RerunTerms, Revisions, SkipReason
from gateway.provenance.run_account import Account, TaskAccount
from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, Caller
from protos.hugginggpt.v1.gateway_pb2 import ListModelsRequest
from protos.hugginggpt.v1.record_pb2 import (
    VERIFICATION_OUTCOME_DIFFERENT,
    VERIFICATION_OUTCOME_FAILED,
    VERIFICATION_OUTCOME_GONE,
    VERIFICATION_OUTCOME_NOT_COMPARABLE,
    VERIFICATION_OUTCOME_SAME,
    Verification,
    VerificationOutcome,
    VerifiedTask,
)
from protos.hugginggpt.v1.task_pb2 import DETERMINISM_EXACT
from services.common.artifacts import ArtifactStore
from services.common.call_context import current, use_caller
from services.common.errors import NotFound

MAX_FINDINGS = 5

ACCEPTABLE_OUTCOMES = frozenset({VERIFICATION_OUTCOME_SAME, VERIFICATION_OUTCOME_NOT_COMPARABLE})
"""Outcomes with which a run counts as verified."""

Found = tuple["VerificationOutcome.ValueType", list[str]]


class Verifier:
    """Verifies runs of the current caller's tenant.

    Args:
        runs: reads and starts runs.
        catalog: lists the available models.
        store: artifact store.
    """

    def __init__(self, runs: RunOperations, catalog: Catalog, store: ArtifactStore) -> None:
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


class RunComparator:
    """Compares runs of one tenant.

    Args:
        store: artifact store.
        tenant: tenant of both runs.
    """

    def __init__(self, store: ArtifactStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    async def compare(self, before: Account, after: Account) -> Verification:
        """Compares every task of two runs."""
        terms = RerunTerms.read_from(after.run.spec)
        skip_reasons = terms.left_out if terms else {}
        tasks = []
        for number, task in before.tasks.items():
            if number in skip_reasons:
                tasks.append(skipped_task(task, skip_reasons[number]))
            else:
                outcome, findings = await self._task(task, after.tasks.get(number))
                tasks.append(_verified(task, outcome, findings))
        return verification(before.run.run_id, after.run.run_id, tasks)

    async def _task(self, before: TaskAccount, after: TaskAccount | None) -> Found:
        if after is None or not after.result.outputs:
            reason = code(after.result.failure.reason) if after else ""
            return VERIFICATION_OUTCOME_FAILED, [f"the rerun had no outputs: {reason or 'the task did not start'}"]
        if _model_call(before) != _model_call(after):
            return VERIFICATION_OUTCOME_FAILED, ["the rerun used a different commit or different inputs"]
        findings, unmeasured = list(_ports(before, after)), list[str]()
        for port in sorted(before.result.outputs.keys() & after.result.outputs.keys()):
            pair = before.result.outputs[port], after.result.outputs[port]
            try:
                findings += await self._value(*pair, port, exact=before.selected.determinism == DETERMINISM_EXACT)
            except media_difference.NotMeasurable as why:
                unmeasured.append(f"{port}: the bytes differ, and {why}")
        if findings:
            return VERIFICATION_OUTCOME_DIFFERENT, findings
        return (VERIFICATION_OUTCOME_NOT_COMPARABLE, unmeasured) if unmeasured else (VERIFICATION_OUTCOME_SAME, [])

    async def _value(self, before: Value, after: Value, port: str, *, exact: bool) -> list[str]:
        if value_digest(before) == value_digest(after) or _same_bytes(before, after):
            return []
        if exact:
            return [f"{port}: different bytes"]
        if before.WhichOneof("kind") == after.WhichOneof("kind") == "text":
            return list(value_difference.of_text(before.text, after.text, port))
        if before.WhichOneof("kind") == after.WhichOneof("kind") == "json":
            return list(value_difference.of_json(before.json, after.json, port))
        return await self._files(before, after, port)

    async def _files(self, before: Value, after: Value, port: str) -> list[str]:
        kinds = {before.artifact.media_type, after.artifact.media_type}
        if len(kinds) > 1:
            return [f"{port}: different media type"]
        if max(before.artifact.size_bytes, after.artifact.size_bytes) > media_difference.MAX_BYTES:
            raise media_difference.NotMeasurable("the files are too large to compare")
        was, now = [await self._bytes(value) for value in (before, after)]
        return await asyncio.to_thread(_differences, was, now, kinds.pop(), port)

    async def _bytes(self, value: Value) -> bytes:
        try:
            return await self._store.get(self._tenant, value.artifact.sha256)
        except NotFound:
            raise media_difference.NotMeasurable("the original output no longer exists") from None


def skipped_task(task: TaskAccount, skip_reason: SkipReason) -> VerifiedTask:
    """Returns the verification of a task that is not rerun."""
    return _verified(task, skip_reason.outcome, [skip_reason.message])


def verification(run_id: str, again: str, tasks: list[VerifiedTask]) -> Verification:
    """Returns a complete verification."""
    is_verified = all(task.outcome in ACCEPTABLE_OUTCOMES for task in tasks)
    return Verification(
        version=VERSION, run_id=run_id, again_run_id=again, ended=True, verified=is_verified, tasks=tasks
    )


def _model_call(account: TaskAccount) -> tuple[str, str, str, str]:
    by = account.result.by
    return account.task.task, by.model_id, by.revision, account.result.input_digest


def _ports(before: TaskAccount, after: TaskAccount) -> Iterator[str]:
    was, now = before.result.outputs.keys(), after.result.outputs.keys()
    yield from (f"{port}: missing" for port in sorted(was - now))
    yield from (f"{port}: new" for port in sorted(now - was))


def _same_bytes(before: Value, after: Value) -> bool:
    return before.HasField("artifact") and before.artifact.sha256 == after.artifact.sha256


def _differences(before: bytes, after: bytes, media_type: str, port: str) -> list[str]:
    kind = media_type.partition(";")[0]
    try:
        if kind == "application/json":
            return list(value_difference.of_json(before.decode(), after.decode(), port))
        if kind.startswith("text/"):
            return list(value_difference.of_text(before.decode(), after.decode(), port))
    except (ValueError, RecursionError):
        raise media_difference.NotMeasurable(f"the content is not valid {kind}") from None
    return list(media_difference.difference(before, after, kind, port))


def _verified(task: TaskAccount, outcome: "VerificationOutcome.ValueType", findings: list[str]) -> VerifiedTask:
    more = len(findings) - MAX_FINDINGS
    shown = findings[:MAX_FINDINGS] + ([f"and {more} more"] if more > 0 else [])
    return VerifiedTask(
        id=task.task.id,
        task=task.task.task,
        outcome=outcome,
        model=model(task.result.by),
        determinism=task.selected.determinism,
        findings=shown,
    )
