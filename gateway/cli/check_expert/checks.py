"""What an expert answers, what it refuses, and how."""

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


# ---------------------------------------------------------------- what it answers


async def answer(target: Target, spec: TaskSpec, card: ModelCard) -> tuple[Finding, Outcome]:
    """A task done with samples."""
    check = f"{spec.name} ({card.id})"
    outcome = await target.first(await target.request(spec, card))
    if outcome.error and is_broken_connection(outcome.error):
        return await broken_connection(target, check), outcome
    if outcome.error:
        honest = card.state == MODEL_STATE_FAILED and outcome.error.reason == "LOAD_FAILED"
        sample = outcome.error.code is grpc.StatusCode.INVALID_ARGUMENT
        level = Level.WARNING if sample or honest else Level.WRONG
        return Finding(check, level, outcome.told, outcome.error.remedy), outcome
    if complaint := await _complaint(target, spec, card, outcome):
        return wrong(check, complaint, "keep to the ports of the task"), outcome
    return ok(check, f"{outcome.seconds:.2f} s: {', '.join(sorted(outcome.reply.outputs))}"), outcome


async def broken_connection(target: Target, check: str) -> Finding:
    """A check during which the connection broke: whether the expert is still there."""
    if await target.is_there():
        found = "the connection broke during the call: the process died and was started again, or closed the connection"
    else:
        found = "the process died during the call: nothing answers at its address any more"
    return wrong(check, found, "look at its log and at its exit status; a call must not end the process")


async def _complaint(target: Target, spec: TaskSpec, card: ModelCard, outcome: Outcome) -> str:
    reply = outcome.reply
    ports = {port.name: port for port in spec.outputs}
    unknown = sorted(reply.outputs.keys() - ports.keys())
    missing = [port.name for port in spec.outputs if port.required and port.name not in reply.outputs]
    if unknown or missing:
        return f"there is no output {unknown[0]}" if unknown else f"output {missing[0]} is missing"
    if card.revision and reply.revision != card.revision:
        return f"it ran revision {reply.revision or 'unknown'}, its card says {card.revision}"
    if absent := [name for name in TRAILERS if name not in outcome.trailer]:
        return f"the trailing metadata has no {absent[0]}"
    for name, value in reply.outputs.items():
        if complaint := await _unfit(target, ports[name], value):
            return f"output {name} {complaint}"
    return ""


async def _unfit(target: Target, port: Port, value: Value) -> str:
    kind = value.WhichOneof("kind")
    if kind == "artifact":
        try:
            kept = await target.store.head(TENANT, value.artifact.sha256)
        except NotFound:
            return "is not in the artifact store: is ARTIFACTS_URL the same here and there?"
        return "" if kept.size_bytes == value.artifact.size_bytes else "has another size in the store"
    if kind != {MODALITY_TEXT: "text", MODALITY_JSON: "json"}.get(port.modality):
        return f"is {kind or 'nothing'}"
    content = value.text or value.json
    if len(content.encode()) > INLINE_BYTES:
        return "is too long to travel inline"
    return "is not canonical JSON" if kind == "json" and not _is_canonical(content) else ""


def _is_canonical(text: str) -> bool:
    try:
        parsed = json.loads(text)
        return text == json.dumps(parsed, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        return False


# ---------------------------------------------------------------- what it refuses


async def refusals(target: Target, spec: TaskSpec, card: ModelCard) -> AsyncIterator[Finding]:
    """Calls that are wrong, each in one way."""
    right = await target.request(spec, card)
    for what, request, expected, port in _wrong_calls(spec, card, right):
        outcome = await target.infer(request)
        error = outcome.error
        if not error or (error.code.name, error.reason) != expected or (port and error.port != port):
            at = f" naming {port}" if port else ""
            yield wrong(what, f"gives {outcome.told}", f"{'/'.join(expected)}{at} is expected, {_DETAILS}")
        elif not error.remedy:
            yield wrong(what, f"{outcome.told}: it is refused without remedy", f"what helps, {_DETAILS}")
        elif TRAILERS[0] not in outcome.trailer:
            found = f"{outcome.told}: it is refused without trailing metadata"
            yield wrong(what, found, f"{', '.join(TRAILERS)}, as with an answer")
        else:
            yield ok(what, outcome.told)


async def policy(target: Target, outside: Sequence[tuple[TaskSpec, ModelCard]]) -> AsyncIterator[Finding]:
    """Calls whose data may not leave the house, to models that are outside."""
    leaks = [leak for spec, card in outside if (leak := await _leak(target, spec, card))]
    for leak in leaks:
        yield leak
    if outside and not leaks:
        yield ok("policy", f"{len(outside)} tasks outside the house refuse what may not leave it")


async def _leak(target: Target, spec: TaskSpec, card: ModelCard) -> Finding | None:
    request = await target.request(spec, card)
    for whose, metadata in (("a call under the policy local", target.local), ("a call without a policy", ())):
        outcome = await target.infer(request, metadata=metadata)
        if not outcome.error or outcome.error.reason != "POLICY":
            remedy = f"FAILED_PRECONDITION/POLICY is expected before anything is sent, {_DETAILS}"
            return wrong(f"policy of {spec.name} ({card.id})", f"{whose} gives {outcome.told}", remedy)
    return None


WrongCall = tuple[str, InferRequest, tuple[str, str], str]


def _wrong_calls(spec: TaskSpec, card: ModelCard, right: InferRequest) -> Iterator[WrongCall]:
    invalid = ("INVALID_ARGUMENT", "INVALID")
    yield "unknown task", _changed(right, task="no-such-task"), ("NOT_FOUND", "TASK"), ""
    yield "unknown model", _changed(right, model="no/such-model"), ("NOT_FOUND", "MODEL"), ""
    if card.revision:
        yield "other revision", _changed(right, revision="no-such"), ("FAILED_PRECONDITION", "REVISION"), ""
    yield "unknown port", _with(right, "no_such_port", Value(text="x")), invalid, "no_such_port"
    for port in spec.inputs:
        if port.required:
            yield f"without {port.name}", _without(right, port.name), invalid, port.name
            if not port.many:
                other = Value(json="{}") if port.modality == MODALITY_TEXT else Value(text="x")
                yield f"other modality for {port.name}", _with(right, port.name, other), invalid, port.name
                yield f"nothing for {port.name}", _with(right, port.name, Value()), invalid, port.name
            if port.modality == MODALITY_IMAGE:
                gone = Value(artifact=Artifact(sha256="0" * 64, media_type="image/png", size_bytes=1))
                yield "absent file", _with(right, port.name, gone), ("NOT_FOUND", "ARTIFACT"), port.name
    yield "unknown parameter", _changed(right, parameters_json='{"no_such":1}'), invalid, ""
    for parameter in spec.parameters:
        value = samples.out_of_range(parameter)
        if value is not None:
            given = samples.parameters(spec) | {parameter.name: value}
            yield f"{parameter.name} out of range", _changed(right, parameters_json=json.dumps(given)), invalid, ""


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
