"""Reruns of a run: which of its tasks are left out and why, and the spec of the new run."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from uuid import uuid4

from gateway.core.validation import RERUN_METADATA
from gateway.provenance.record import canonical_json
from gateway.provenance.run_account import Account, TaskAccount, values_of
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.record_pb2 import (
    VERIFICATION_OUTCOME_GONE,
    VERIFICATION_OUTCOME_NOT_COMPARABLE,
    VerificationOutcome,
)
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS, RunSpec
from protos.hugginggpt.v1.task_pb2 import DETERMINISM_NONE, DETERMINISM_UNSPECIFIED, Argument, Task


@dataclass(frozen=True)
class SkipReason:
    """Why a task is not rerun."""

    outcome: "VerificationOutcome.ValueType"
    message: str


@dataclass(frozen=True)
class RerunTerms:
    """What a rerun covers."""

    run_id: str
    """Id of the original run."""
    left_out: Mapping[int, SkipReason]
    """Skipped tasks by task id."""

    def write_to(self, spec: RunSpec) -> None:
        """Writes the terms to the metadata of the rerun's spec."""
        left_out = {
            str(number): [skip_reason.outcome, skip_reason.message] for number, skip_reason in self.left_out.items()
        }
        spec.metadata[RERUN_METADATA] = canonical_json({"run_id": self.run_id, "left_out": left_out})

    @classmethod
    def read_from(cls, spec: RunSpec) -> "RerunTerms | None":
        """Reads the terms of a rerun; None if the run is not a rerun."""
        if RERUN_METADATA not in spec.metadata:
            return None
        stored = json.loads(spec.metadata[RERUN_METADATA])
        left_out = {int(number): SkipReason(*skip_reason) for number, skip_reason in stored["left_out"].items()}
        return cls(stored["run_id"], left_out)


Revisions = Mapping[tuple[str, str], Collection[str]]
"""Available model commits by task and model."""


def revisions(cards: Collection[ModelCard]) -> Revisions:
    found: dict[tuple[str, str], set[str]] = {}
    for card in cards:
        found.setdefault((card.task, card.id), set()).add(card.revision)
    return found


def incomparable_reason(task_account: TaskAccount) -> SkipReason | None:
    """Returns why a task's outputs cannot be compared; None if they can."""
    by, message = task_account.result.by, ""
    if not task_account.result.outputs:
        message = "the task had no outputs"
    elif task_account.selected.determinism == DETERMINISM_UNSPECIFIED:
        message = "the run does not state whether the task is deterministic"
    elif task_account.selected.determinism == DETERMINISM_NONE:
        message = "the task type is not deterministic"
    elif not by.revision:
        message = f"the commit of {by.model_id} was unknown"
    return SkipReason(VERIFICATION_OUTCOME_NOT_COMPARABLE, message) if message else None


def missing_model_reason(task_account: TaskAccount, available: Revisions) -> SkipReason | None:
    """Returns why the task's model cannot be used; None if model and commit are available."""
    by = task_account.result.by
    known = available.get((task_account.task.task, by.model_id), ())
    if by.revision in known:
        return None
    if not known:
        return SkipReason(VERIFICATION_OUTCOME_GONE, f"model {by.model_id} is no longer available")
    now = ", ".join(sorted(filter(None, known))) or "unknown"
    return SkipReason(
        VERIFICATION_OUTCOME_GONE, f"commit {by.revision} of {by.model_id} is no longer available; current: {now}"
    )


def artifacts_of(task_account: TaskAccount, account: Account) -> Iterator[tuple[str, str]]:
    """Yields port and digest of each input file of a task."""
    for port, value in values_of(task_account.task, account):
        if value is not None and value.HasField("artifact"):
            yield port, value.artifact.sha256


def spec(account: Account, tasks: Collection[TaskAccount], skip_reasons: Mapping[int, SkipReason]) -> RunSpec:
    """Returns the spec of the rerun."""
    rerun_spec = RunSpec(
        plan=Plan(tasks=[_rerun_task(task, account) for task in tasks]),
        mode=RUN_MODE_RESULTS,
        inference_mode=account.run.spec.inference_mode,
        bypass_memo=True,
        idempotency_key=uuid4().hex,
    )
    RerunTerms(account.run.run_id, skip_reasons).write_to(rerun_spec)
    return rerun_spec


def _rerun_task(task_account: TaskAccount, account: Account) -> Task:
    task, by = task_account.task, task_account.result.by
    rerun_task = Task(id=task.id, task=task.task, pinned_model=by.model_id, pinned_revision=by.revision)
    rerun_task.parameters_json = _parameters(task.parameters_json, task_account.result.seed)
    lists = {port for port, argument in task.arguments.items() if argument.HasField("list")}
    for port, value in values_of(task, account):
        target = rerun_task.arguments[port].list.items.add() if port in lists else rerun_task.arguments[port]
        target.CopyFrom(Argument(value=value))
    return rerun_task


def _parameters(text: str, seed: int) -> str:
    if not seed:
        return text
    return canonical_json({**json.loads(text or "{}"), "seed": seed})
