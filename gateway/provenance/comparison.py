"""Compares the results of a run with those of its rerun."""

import asyncio
from collections.abc import Iterator

from gateway.provenance import digests, media_difference, tolerance
from gateway.provenance.record import VERSION, code, model
from gateway.provenance.rerun import RerunTerms, SkipReason
from gateway.provenance.run_account import Account, TaskAccount
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.record_pb2 import (
    VERIFICATION_OUTCOME_DIFFERENT,
    VERIFICATION_OUTCOME_FAILED,
    VERIFICATION_OUTCOME_NOT_COMPARABLE,
    VERIFICATION_OUTCOME_SAME,
    Verification,
    VerificationOutcome,
    VerifiedTask,
)
from protos.hugginggpt.v1.task_pb2 import DETERMINISM_EXACT
from services.common.artifacts import ArtifactStore
from services.common.errors import NotFound

MAX_FINDINGS = 5

ACCEPTABLE_OUTCOMES = frozenset({VERIFICATION_OUTCOME_SAME, VERIFICATION_OUTCOME_NOT_COMPARABLE})
"""Outcomes with which a run counts as verified."""

Found = tuple["VerificationOutcome.ValueType", list[str]]


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
        if digests.of_value(before) == digests.of_value(after) or _same_bytes(before, after):
            return []
        if exact:
            return [f"{port}: different bytes"]
        if before.WhichOneof("kind") == after.WhichOneof("kind") == "text":
            return list(tolerance.of_text(before.text, after.text, port))
        if before.WhichOneof("kind") == after.WhichOneof("kind") == "json":
            return list(tolerance.of_json(before.json, after.json, port))
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
            return list(tolerance.of_json(before.decode(), after.decode(), port))
        if kind.startswith("text/"):
            return list(tolerance.of_text(before.decode(), after.decode(), port))
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
