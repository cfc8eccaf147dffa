"""What an expert promises, one check each."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

from gateway.cli.finding import Finding, Level
from gateway.cli.promises import samples
from gateway.cli.promises.target import TENANT, Outcome, Target
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import expert_pb2
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse, InferRequest
from protos.hugginggpt.v1.types_pb2 import (
    MODALITY_IMAGE,
    MODALITY_JSON,
    MODALITY_TEXT,
    Artifact,
    ModelCard,
    Port,
    TaskSpec,
    Value,
)
from services.runtime.artifacts import INLINE_BYTES
from services.runtime.errors import NotFound

TRAILERS = ("expert-queue", "expert-loaded", "expert-free-bytes")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
_SERVICE = expert_pb2.DESCRIPTOR.services_by_name["ExpertService"].full_name


def ok(check: str, found: str) -> Finding:
    return Finding(check, Level.OK, found)


def wrong(check: str, found: str, remedy: str = "") -> Finding:
    return Finding(check, Level.WRONG, found, remedy)


# ---------------------------------------------------------------- what it says of itself


async def health(target: Target, described: DescribeResponse) -> AsyncIterator[Finding]:
    """Its names on grpc.health.v1."""
    expected = dict.fromkeys(("", "startup", "readiness", "liveness", _SERVICE), True)
    loaded = set(described.load.loaded)
    expected |= {card.id: card.id in loaded for card in described.models}
    for name, serving in expected.items():
        said = await target.serves(name)
        if said is not serving:
            words = {True: "SERVING", False: "NOT_SERVING", None: "unknown"}
            found = f"{name!r} is {words[said]}, where {words[serving]} is expected"
            yield wrong("health", found, "one name per model, and the three probes, on grpc.health.v1")
            return
    yield ok("health", f"{len(expected)} names say what they should")


def description(described: DescribeResponse) -> Iterator[Finding]:
    """Its tasks and cards."""
    if not _NAME.fullmatch(described.expert):
        yield wrong("name", f"its name is {described.expert!r}", "a short plain name: replicas share it")
    specs = {spec.name: spec for spec in described.tasks}
    for spec in specs.values():
        standard = standard_tasks().get(spec.name)
        if standard and (_ports(spec) != _ports(standard)):
            yield wrong(f"task {spec.name}", "has other ports than the standard task", "take them from tasks.json")
    for card in described.models:
        if card.task not in specs:
            yield wrong(f"model {card.id}", f"is for {card.task}, which is not among the tasks")
        missing = [name for name in ("description", "license", "revision") if not getattr(card, name)]
        if missing:
            found, remedy = f"its card has no {', '.join(missing)}", "the selector and the memo stand on them"
            yield Finding(f"model {card.id}", Level.WARNING, found, remedy)
    version = described.version or "unknown"
    yield ok(
        "description", f"{described.expert}, version {version}: {len(specs)} tasks, {len(described.models)} models"
    )


async def change_counter(target: Target, described: DescribeResponse) -> Finding:
    """Whether it says that nothing changed."""
    again = await target.describe(described.revision)
    if again.revision == described.revision and not (again.unchanged and not again.models):
        return wrong("change counter", "it repeats all it said though nothing changed", "honour known_revision")
    return ok("change counter", f"revision {described.revision}")


def _ports(spec: TaskSpec) -> list[list[tuple[Any, ...]]]:
    return [[(p.name, p.modality, p.required, p.many) for p in ports] for ports in (spec.inputs, spec.outputs)]


# ---------------------------------------------------------------- what it answers


async def answer(target: Target, spec: TaskSpec, card: ModelCard) -> tuple[Finding, Outcome]:
    """A task done with samples."""
    check = f"{spec.name} ({card.id})"
    outcome = await target.infer(await target.request(spec, card))
    if outcome.error:
        sample = outcome.error.code is grpc.StatusCode.INVALID_ARGUMENT
        level = Level.WARNING if sample else Level.WRONG
        return Finding(check, level, outcome.told, outcome.error.remedy), outcome
    if complaint := await _complaint(target, spec, card, outcome):
        return wrong(check, complaint, "keep to the ports of the task"), outcome
    return ok(check, f"{outcome.seconds:.2f} s: {', '.join(sorted(outcome.reply.outputs))}"), outcome


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
            yield wrong(what, f"gives {outcome.told}", f"{'/'.join(expected)}{at} is expected")
        elif not error.remedy or TRAILERS[0] not in outcome.trailer:
            lacking = "remedy" if not error.remedy else "trailing metadata"
            yield wrong(what, f"is refused without {lacking}", "errors carry both")
        else:
            yield ok(what, error.message)


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
