"""How a run is done again: its deterministic tasks, each for itself, by the same commits and with the same values."""

import json
from collections.abc import Collection, Iterator, Mapping
from uuid import uuid4

from gateway.provenance.arguments import values_of
from gateway.provenance.digests import canonical
from gateway.provenance.rerun_terms import Hurdle, Terms
from gateway.provenance.run_account import Account, TaskAccount
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.record_pb2 import VERIFICATION_OUTCOME_GONE, VERIFICATION_OUTCOME_NOT_COMPARABLE
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS, RunSpec
from protos.hugginggpt.v1.task_pb2 import DETERMINISM_NONE, DETERMINISM_UNSPECIFIED, Argument, Task

Revisions = Mapping[tuple[str, str], Collection[str]]
"""By task and model, the commits that there are."""


def revisions(cards: Collection[ModelCard]) -> Revisions:
    found: dict[tuple[str, str], set[str]] = {}
    for card in cards:
        found.setdefault((card.task, card.id), set()).add(card.revision)
    return found


def incomparable(told: TaskAccount) -> Hurdle | None:
    """Why what a task gave need not come again."""
    by, because = told.result.by, ""
    if not told.result.outputs:
        because = "it gave nothing"
    elif told.selected.determinism == DETERMINISM_UNSPECIFIED:
        because = "its run does not say whether it has to give the same"
    elif told.selected.determinism == DETERMINISM_NONE:
        because = "its kind of task need not give the same"
    elif not by.revision:
        because = f"the commit of {by.model_id} was not known"
    return Hurdle(VERIFICATION_OUTCOME_NOT_COMPARABLE, because) if because else None


def missing_model(told: TaskAccount, there: Revisions) -> Hurdle | None:
    """Whether model and commit are there."""
    by = told.result.by
    known = there.get((told.task.task, by.model_id), ())
    if by.revision in known:
        return None
    if not known:
        return Hurdle(VERIFICATION_OUTCOME_GONE, f"model {by.model_id} is not there any more")
    now = ", ".join(sorted(filter(None, known))) or "unknown"
    return Hurdle(
        VERIFICATION_OUTCOME_GONE, f"commit {by.revision} of {by.model_id} is not there any more; it is now {now}"
    )


def artifacts_of(told: TaskAccount, account: Account) -> Iterator[tuple[str, str]]:
    """Port and digest of the files that a task was given."""
    for port, value in values_of(told.task, account):
        if value is not None and value.HasField("artifact"):
            yield port, value.artifact.sha256


def spec(account: Account, tasks: Collection[TaskAccount], hurdles: Mapping[int, Hurdle]) -> RunSpec:
    """What the run that does it again is asked."""
    asked = RunSpec(
        plan=Plan(tasks=[_again(task, account) for task in tasks]),
        mode=RUN_MODE_RESULTS,
        inference_mode=account.accepted.spec.inference_mode,
        bypass_memo=True,
        idempotency_key=uuid4().hex,
    )
    Terms(account.run_id, hurdles).note(asked)
    return asked


def _again(told: TaskAccount, account: Account) -> Task:
    task, by = told.task, told.result.by
    again = Task(id=task.id, task=task.task, pinned_model=by.model_id, pinned_revision=by.revision)
    again.parameters_json = _parameters(task.parameters_json, told.result.seed)
    lists = {port for port, argument in task.arguments.items() if argument.HasField("list")}
    for port, value in values_of(task, account):
        place = again.arguments[port].list.items.add() if port in lists else again.arguments[port]
        place.CopyFrom(Argument(value=value))
    return again


def _parameters(text: str, seed: int) -> str:
    if not seed:
        return text
    return canonical({**json.loads(text or "{}"), "seed": seed})
