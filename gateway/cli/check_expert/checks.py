"""Checks of an expert's replies: to valid calls, invalid calls and calls that its data policy forbids."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import grpc

from gateway.cli.check_expert import samples
from gateway.cli.check_expert.error_text import is_broken_connection
from gateway.cli.check_expert.findings import ok, wrong
from gateway.cli.check_expert.target import TENANT, Outcome, Target
from gateway.cli.doctor_finding import Finding, Level
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_IMAGE, MODALITY_JSON, MODALITY_TEXT, Artifact, Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_FAILED, ModelCard
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common.artifacts import INLINE_BYTES
from services.common.errors import NotFound

TRAILERS = ("expert-queue", "expert-loaded", "expert-free-bytes")
_DETAILS = "in google.rpc.ErrorInfo (reason; metadata: remedy, port), sent as grpc-status-details-bin"


# ---------------------------------------------------------------- valid calls


async def answer(target: Target, spec: TaskSpec, card: ModelCard) -> tuple[Finding, Outcome]:
    """Calls a task with samples, and checks the reply."""
    check = f"{spec.name} ({card.id})"
    outcome = await target.infer_after_loading(await target.request(spec, card))
    if outcome.error and is_broken_connection(outcome.error):
        return await broken_connection(target, check), outcome
    if outcome.error:
        is_announced = card.state == MODEL_STATE_FAILED and outcome.error.reason == "LOAD_FAILED"
        is_unfit_sample = outcome.error.code is grpc.StatusCode.INVALID_ARGUMENT
        level = Level.WARNING if is_unfit_sample or is_announced else Level.WRONG
        return Finding(check, level, outcome.summary, outcome.error.remedy), outcome
    if flaw := await _reply_flaw(target, spec, card, outcome):
        return wrong(check, flaw, "a reply that fits the task's ports, with all trailers"), outcome
    return ok(check, f"{outcome.seconds:.2f} s: {', '.join(sorted(outcome.reply.outputs))}"), outcome


async def broken_connection(target: Target, check: str) -> Finding:
    """A check during which the connection broke."""
    if await target.is_reachable():
        found = "the connection broke during the call: the process restarted or closed the connection"
    else:
        found = "the process died during the call: nothing listens at its address now"
    return wrong(check, found, "a call must not end the process; read its log and exit status")


async def _reply_flaw(target: Target, spec: TaskSpec, card: ModelCard, outcome: Outcome) -> str:
    reply = outcome.reply
    ports = {port.name: port for port in spec.outputs}
    unknown = sorted(reply.outputs.keys() - ports.keys())
    missing = [port.name for port in spec.outputs if port.required and port.name not in reply.outputs]
    if unknown or missing:
        return f"the task has no output {unknown[0]}" if unknown else f"output {missing[0]} is missing"
    if card.revision and reply.revision != card.revision:
        return f"the reply is from revision {reply.revision or 'unknown'}, the card has {card.revision}"
    if absent := [name for name in TRAILERS if name not in outcome.trailer]:
        return f"the trailing metadata lacks {absent[0]}"
    for name, value in reply.outputs.items():
        if flaw := await _value_flaw(target, ports[name], value):
            return f"output {name} {flaw}"
    return ""


async def _value_flaw(target: Target, port: Port, value: Value) -> str:
    kind = value.WhichOneof("kind")
    if kind == "artifact":
        try:
            stored = await target.store.head(TENANT, value.artifact.sha256)
        except NotFound:
            return "is not in the artifact store; check that ARTIFACTS_URL is the same here and at the expert"
        return "" if stored.size_bytes == value.artifact.size_bytes else "has another size in the artifact store"
    if kind != {MODALITY_TEXT: "text", MODALITY_JSON: "json"}.get(port.modality):
        return f"is {kind or 'nothing'}"
    content = value.text or value.json
    if len(content.encode()) > INLINE_BYTES:
        return f"is inline and longer than {INLINE_BYTES} bytes"
    return "is not canonical JSON" if kind == "json" and not _is_canonical(content) else ""


def _is_canonical(text: str) -> bool:
    try:
        parsed = json.loads(text)
        return text == json.dumps(parsed, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        return False


# ---------------------------------------------------------------- invalid calls


async def refusals(target: Target, spec: TaskSpec, card: ModelCard) -> AsyncIterator[Finding]:
    """Sends calls that each contain one error."""
    valid = await target.request(spec, card)
    for check, request, expected, port in _invalid_calls(spec, card, valid):
        outcome = await target.infer(request)
        error = outcome.error
        if not error or (error.code.name, error.reason) != expected or (port and error.port != port):
            at = f" for port {port}" if port else ""
            yield wrong(check, outcome.summary, f"{'/'.join(expected)}{at}, {_DETAILS}")
        elif not error.remedy:
            yield wrong(check, f"{outcome.summary}: the error has no remedy", f"a remedy {_DETAILS}")
        elif TRAILERS[0] not in outcome.trailer:
            found = f"{outcome.summary}: the error has no trailing metadata"
            yield wrong(check, found, f"{', '.join(TRAILERS)}, as in a successful reply")
        else:
            yield ok(check, outcome.summary)


async def policy(target: Target, external: Sequence[tuple[TaskSpec, ModelCard]]) -> AsyncIterator[Finding]:
    """Calls external models with data that must stay in the deployment."""
    leaks = [leak for spec, card in external if (leak := await _leak(target, spec, card))]
    for leak in leaks:
        yield leak
    if external and not leaks:
        yield ok("policy", f"{len(external)} tasks with external models refuse calls of the policy local")


async def _leak(target: Target, spec: TaskSpec, card: ModelCard) -> Finding | None:
    request = await target.request(spec, card)
    for caller, metadata in (("a call with the policy local", target.local_metadata), ("a call without a policy", ())):
        outcome = await target.infer(request, metadata=metadata)
        if not outcome.error or outcome.error.reason != "POLICY":
            remedy = f"FAILED_PRECONDITION/POLICY before any data is sent, {_DETAILS}"
            return wrong(f"policy of {spec.name} ({card.id})", f"{caller}: {outcome.summary}", remedy)
    return None


InvalidCall = tuple[str, InferRequest, tuple[str, str], str]


def _invalid_calls(spec: TaskSpec, card: ModelCard, valid: InferRequest) -> Iterator[InvalidCall]:
    invalid = ("INVALID_ARGUMENT", "INVALID")
    yield "unknown task", _changed(valid, task="no-such-task"), ("NOT_FOUND", "TASK"), ""
    yield "unknown model", _changed(valid, model="no/such-model"), ("NOT_FOUND", "MODEL"), ""
    if card.revision:
        yield "other revision", _changed(valid, revision="no-such"), ("FAILED_PRECONDITION", "REVISION"), ""
    yield "unknown port", _with(valid, "no_such_port", Value(text="x")), invalid, "no_such_port"
    for port in spec.inputs:
        if port.required:
            yield f"without {port.name}", _without(valid, port.name), invalid, port.name
            if not port.many:
                other = Value(json="{}") if port.modality == MODALITY_TEXT else Value(text="x")
                yield f"other modality for {port.name}", _with(valid, port.name, other), invalid, port.name
                yield f"empty value for {port.name}", _with(valid, port.name, Value()), invalid, port.name
            if port.modality == MODALITY_IMAGE:
                absent = Value(artifact=Artifact(sha256="0" * 64, media_type="image/png", size_bytes=1))
                yield "absent file", _with(valid, port.name, absent), ("NOT_FOUND", "ARTIFACT"), port.name
    yield "unknown parameter", _changed(valid, parameters_json='{"no_such":1}'), invalid, ""
    for parameter in spec.parameters:
        value = samples.out_of_range(parameter)
        if value is not None:
            given = samples.parameters(spec) | {parameter.name: value}
            yield f"{parameter.name} out of range", _changed(valid, parameters_json=json.dumps(given)), invalid, ""


def _changed(request: InferRequest, **fields: Any) -> InferRequest:
    changed = InferRequest()
    changed.CopyFrom(request)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _with(request: InferRequest, port: str, value: Value) -> InferRequest:
    changed = _changed(request)
    changed.inputs[port].CopyFrom(value)
    return changed


def _without(request: InferRequest, port: str) -> InferRequest:
    changed = _changed(request)
    changed.inputs.pop(port, None)
    changed.lists.pop(port, None)
    return changed
