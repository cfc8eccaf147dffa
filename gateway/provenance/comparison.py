"""What a run gave against what it gave when it was done again."""

import asyncio
from collections.abc import Iterator

from gateway.provenance import digests, media_difference, tolerance
from gateway.provenance.record import VERSION, code, model
from gateway.provenance.rerun_terms import Hurdle, Terms
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

MOST_FINDINGS = 5

WELL = frozenset({VERIFICATION_OUTCOME_SAME, VERIFICATION_OUTCOME_NOT_COMPARABLE})
"""What nothing is wrong with."""

Found = tuple["VerificationOutcome.ValueType", list[str]]


class Comparing:
    """Compares runs of one tenant.

    Args:
        store: where their files are.
        tenant: whose they are.
    """

    def __init__(self, store: ArtifactStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    async def compared(self, before: Account, after: Account) -> Verification:
        """What came of every task."""
        terms = Terms.of(after.accepted.spec)
        hurdles = terms.left_out if terms else {}
        tasks = []
        for number, task in before.tasks.items():
            if number in hurdles:
                tasks.append(stopped(task, hurdles[number]))
            else:
                outcome, findings = await self._task(task, after.tasks.get(number))
                tasks.append(_verified(task, outcome, findings))
        return verification(before.run_id, after.run_id, tasks)

    async def _task(self, before: TaskAccount, after: TaskAccount | None) -> Found:
        if after is None or not after.result.outputs:
            reason = code(after.result.failure.reason) if after else ""
            return VERIFICATION_OUTCOME_FAILED, [
                f"it gave nothing when it was done again: {reason or 'it was not started'}"
            ]
        if _done(before) != _done(after):
            return VERIFICATION_OUTCOME_FAILED, ["it was not done again by the same commit with the same inputs"]
        findings, unmeasured = list(_ports(before, after)), list[str]()
        for port in sorted(before.result.outputs.keys() & after.result.outputs.keys()):
            pair = before.result.outputs[port], after.result.outputs[port]
            try:
                findings += await self._value(*pair, port, exact=before.selected.determinism == DETERMINISM_EXACT)
            except media_difference.NoMeasure as why:
                unmeasured.append(f"{port}: its bytes differ, and {why}")
        if findings:
            return VERIFICATION_OUTCOME_DIFFERENT, findings
        return (VERIFICATION_OUTCOME_NOT_COMPARABLE, unmeasured) if unmeasured else (VERIFICATION_OUTCOME_SAME, [])

    async def _value(self, before: Value, after: Value, port: str, *, exact: bool) -> list[str]:
        if digests.of_value(before) == digests.of_value(after) or _same_bytes(before, after):
            return []
        if exact:
            return [f"{port}: not the same bytes"]
        if before.WhichOneof("kind") == after.WhichOneof("kind") == "text":
            return list(tolerance.of_text(before.text, after.text, port))
        if before.WhichOneof("kind") == after.WhichOneof("kind") == "json":
            return list(tolerance.of_json(before.json, after.json, port))
        return await self._files(before, after, port)

    async def _files(self, before: Value, after: Value, port: str) -> list[str]:
        kinds = {before.artifact.media_type, after.artifact.media_type}
        if len(kinds) > 1:
            return [f"{port}: another kind of file"]
        if max(before.artifact.size_bytes, after.artifact.size_bytes) > media_difference.MOST_BYTES:
            raise media_difference.NoMeasure("the files are too large to be looked into")
        was, now = [await self._bytes(value) for value in (before, after)]
        return await asyncio.to_thread(_differences, was, now, kinds.pop(), port)

    async def _bytes(self, value: Value) -> bytes:
        try:
            return await self._store.get(self._tenant, value.artifact.sha256)
        except NotFound:
            raise media_difference.NoMeasure("what it gave at first is not there any more") from None


def stopped(task: TaskAccount, hurdle: Hurdle) -> VerifiedTask:
    """A task that is not done again."""
    return _verified(task, hurdle.outcome, [hurdle.because])


def verification(run_id: str, again: str, tasks: list[VerifiedTask]) -> Verification:
    """What is known once all is known."""
    well = all(task.outcome in WELL for task in tasks)
    return Verification(version=VERSION, run_id=run_id, again_run_id=again, ended=True, verified=well, tasks=tasks)


def _done(told: TaskAccount) -> tuple[str, str, str, str]:
    by = told.result.by
    return told.task.task, by.model_id, by.revision, told.result.input_digest


def _ports(before: TaskAccount, after: TaskAccount) -> Iterator[str]:
    was, now = before.result.outputs.keys(), after.result.outputs.keys()
    yield from (f"{port}: is missing" for port in sorted(was - now))
    yield from (f"{port}: is new" for port in sorted(now - was))


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
        raise media_difference.NoMeasure(f"it is no {kind}") from None
    return list(media_difference.difference(before, after, kind, port))


def _verified(task: TaskAccount, outcome: "VerificationOutcome.ValueType", findings: list[str]) -> VerifiedTask:
    more = len(findings) - MOST_FINDINGS
    shown = findings[:MOST_FINDINGS] + ([f"and {more} more"] if more > 0 else [])
    return VerifiedTask(
        id=task.task.id,
        task=task.task.task,
        outcome=outcome,
        model=model(task.result.by),
        determinism=task.selected.determinism,
        findings=shown,
    )
