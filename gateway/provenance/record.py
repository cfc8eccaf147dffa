"""Run records, derived from the events of a run, and the digests by which content appears in them."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress

from gateway.provenance.run_account import Account, Attempt, TaskAccount, Timed, flat, value_of
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_UNSPECIFIED, Caller
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.plan_pb2 import Decision
from protos.hugginggpt.v1.record_pb2 import (
    DIGEST_KIND_ARTIFACT,
    DIGEST_KIND_JSON,
    DIGEST_KIND_TEXT,
    Digest,
    DigestKind,
    RecordedArgument,
    RecordedAttempt,
    RecordedCaller,
    RecordedDecision,
    RecordedModel,
    RecordedParameter,
    RecordedTask,
    RunRecord,
)
from protos.hugginggpt.v1.run_pb2 import TASK_STATE_REUSED

VERSION = 1

_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


def record(account: Account) -> RunRecord:
    """Returns the record of a run."""
    spec, decided = account.run.spec, list(_decisions(account))
    return RunRecord(
        version=VERSION,
        run_id=account.run.run_id,
        conversation_id=account.run.conversation_id,
        parent_run_id=spec.parent_run_id,
        caller=_caller(account.caller) if account.caller else None,
        create_time=account.run.create_time,
        end_time=account.run.end_time,
        state=account.run.state,
        reason=code(account.run.failure.reason),
        policy=account.caller.policy if account.caller else DATA_POLICY_UNSPECIFIED,
        inference_mode=spec.inference_mode,
        selection_policy=spec.selection_policy,
        mode=spec.mode,
        bypass_memo=spec.bypass_memo,
        request=text_digest(spec.request) if spec.request else None,
        inputs=[digest for named in spec.inputs if (digest := value_digest(named.value))],
        planning=[_decision(timed) for timed in account.planning],
        tasks=[_task(task, account) for task in account.tasks.values()],
        answering=_decision(account.answering) if account.answering else None,
        answer=text_digest(account.run.answer) if account.run.answer else None,
        llm_models=list(dict.fromkeys(each.llm_model for each in decided if each.llm_model)),
        takeovers=account.takeovers,
        usage=account.run.usage,
    )


def code(reason: str) -> str:
    """Returns an error code as it is, and OTHER for any other text, which could contain content."""
    return reason if not reason or _CODE.fullmatch(reason) else "OTHER"


def model(candidate: Candidate) -> RecordedModel | None:
    """Returns the recorded model; None if there is no candidate."""
    if not candidate.model_id:
        return None
    return RecordedModel(
        model_id=candidate.model_id,
        revision=candidate.revision,
        expert=candidate.expert,
        expert_version=candidate.expert_version,
        location=candidate.location,
    )


def _caller(caller: Caller) -> RecordedCaller:
    return RecordedCaller(
        tenant=caller.tenant, key_id=caller.key_id, priority=caller.priority, request_id=caller.request_id
    )


def _decisions(account: Account) -> Iterator[Decision]:
    yield from (decision for _, decision in account.planning)
    yield from (task.selected.decision for task in account.tasks.values())
    if account.answering:
        yield account.answering[1]


def _decision(timed: Timed) -> RecordedDecision:
    time, decision = timed
    return RecordedDecision(
        time=time,
        controller=decision.controller,
        llm_model=decision.llm_model,
        version=decision.version,
        fell_back=bool(decision.fell_back_because),
        confidence=decision.confidence,
        usage=decision.usage if decision.HasField("usage") else None,
    )


def _task(task_account: TaskAccount, account: Account) -> RecordedTask:
    result = task_account.result
    recorded = RecordedTask(
        id=task_account.task.id,
        task=task_account.task.task,
        state=task_account.ended.state,
        reason=code(result.failure.reason),
        determinism=task_account.selected.determinism,
        arguments=_arguments(task_account, account),
        parameters=_parameters(task_account.task.parameters_json),
        pinned=bool(task_account.task.pinned_model),
        selection=_decision((task_account.selected_at, task_account.selected.decision))
        if task_account.selected_at
        else None,
        model=model(result.by),
        seed=result.seed,
        input_digest=result.input_digest,
        attempts=[_attempt(number, each) for number, each in sorted(task_account.attempts.items())],
        reused=task_account.ended.state == TASK_STATE_REUSED,
        reused_from_run=result.made_by_run,
        usage=result.usage if result.HasField("usage") else None,
    )
    for port, value in result.outputs.items():
        if digest := value_digest(value):
            recorded.outputs[port].CopyFrom(digest)
    return recorded


def _attempt(number: int, made: Attempt) -> RecordedAttempt:
    return RecordedAttempt(
        attempt=number,
        model=model(made.by),
        start_time=made.began,
        end_time=made.ended,
        reason=code(made.reason),
        next=made.next,
        usage=made.usage,
    )


def _arguments(task_account: TaskAccount, account: Account) -> Iterator[RecordedArgument]:
    positions = {named.name: position for position, named in enumerate(account.run.spec.inputs, start=1)}
    for port, argument in flat(task_account.task):
        value = value_of(argument, account)
        yield RecordedArgument(
            port=port,
            value=value_digest(value) if value else None,
            task_id=argument.reference.task_id,
            output=argument.reference.output,
            input=positions.get(argument.input.name, 0),
        )


def _parameters(text: str) -> Iterator[RecordedParameter]:
    for name, given in sorted(json.loads(text or "{}").items()):
        match given:
            case None:
                yield RecordedParameter(name=name)
            case bool():
                yield RecordedParameter(name=name, flag=given)
            case int() | float():
                yield RecordedParameter(name=name, number=given)
            case str():
                yield RecordedParameter(name=name, digest=text_digest(given))
            case _:
                yield RecordedParameter(name=name, digest=json_digest(canonical_json(given)))


def text_digest(text: str, kind: "DigestKind.ValueType" = DIGEST_KIND_TEXT) -> Digest:
    """Digest of the text's UTF-8 bytes."""
    content = text.encode()
    return Digest(sha256=hashlib.sha256(content).hexdigest(), kind=kind, size_bytes=len(content))


def json_digest(text: str) -> Digest:
    """Digest of the canonical JSON; of the text itself if it is not valid JSON."""
    with suppress(ValueError, RecursionError):
        text = canonical_json(json.loads(text))
    return text_digest(text, DIGEST_KIND_JSON)


def canonical_json(content: object) -> str:
    """Canonical JSON: sorted keys, no spaces, no escapes of non-ASCII characters."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def value_digest(value: Value) -> Digest | None:
    """Digest of a value; None if the value is empty."""
    match value.WhichOneof("kind"):
        case "text":
            return text_digest(value.text)
        case "json":
            return json_digest(value.json)
        case "artifact":
            artifact = value.artifact
            return Digest(
                sha256=artifact.sha256,
                kind=DIGEST_KIND_ARTIFACT,
                size_bytes=artifact.size_bytes,
                media_type=artifact.media_type,
            )
    return None
