"""Checks of what an expert states: tasks, model cards, change counter, health and reflection."""

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

from gateway.conformance.findings import Finding, ok, warning, wrong
from gateway.conformance.target import Target, failure_text
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import expert_pb2
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_UNSPECIFIED
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_STATE_FAILED, ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import from_rpc

SERVICE = expert_pb2.DESCRIPTOR.services_by_name["ExpertService"].full_name

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
_MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_STATUS_NAMES = {True: "SERVING", False: "NOT_SERVING", None: "unknown"}
_LISTED_MODELS = 3
"""Models that a finding lists by id; it gives the number of the others."""
_FIELD_PURPOSES = {
    "description": "users and the selector choose a model by its description",
    "license": "users choose a model by its license, an SPDX identifier",
    "revision": "results are cached only for a known revision: a commit, a tag or a version",
    "location": "MODEL_LOCATION_INTERNAL if it runs inside the deployment, MODEL_LOCATION_EXTERNAL if data leaves it",
}


def description(described: DescribeResponse) -> Iterator[Finding]:
    """Checks the tasks and model cards."""
    if not _NAME.fullmatch(described.expert):
        yield wrong("name", f"the expert's name is {described.expert!r}", "a short plain name, shared by all replicas")
    if not described.tasks:
        yield warning("tasks", "the expert has no tasks", "read its log: a required setting may be missing")
    for spec in described.tasks:
        if flaw := flaw_of(spec):
            yield wrong(f"task {spec.name}", *flaw)
    names = {spec.name for spec in described.tasks}
    for card in described.models:
        if flaw := _card_flaw(card, names):
            yield wrong(f"model {card.id}", *flaw)
    yield from _missing_fields(described)
    yield ok("description", _counts(described))


def _counts(described: DescribeResponse) -> str:
    failed = sum(card.state == MODEL_STATE_FAILED for card in described.models)
    failures = f", {failed} of them failed" if failed else ""
    version = described.version or "unknown"
    counts = f"{len(described.tasks)} tasks, {len(described.models)} models"
    return f"{described.expert}, version {version}: {counts}{failures}"


def flaw_of(spec: TaskSpec) -> tuple[str, str] | None:
    """Why a task cannot be called, and what is expected instead; None if it can be called."""
    standard = standard_tasks().get(spec.name)
    if standard and (_ports(spec) != _ports(standard)):
        return (
            "its ports differ from the standard task of this name",
            "copy the ports from protos/hugginggpt/v1/tasks.json",
        )
    for port in (*spec.inputs, *spec.outputs):
        if not port.name or port.modality == MODALITY_UNSPECIFIED:
            return f"port {port.name!r} has no name or no modality", "every port has a name and a modality"
    for parameter in spec.parameters:
        if not _is_schema(parameter.json_schema):
            found = f"json_schema of parameter {parameter.name} is not a JSON object"
            return found, 'a JSON Schema, such as {"type": "integer", "minimum": 1}'
    return None


def _is_schema(text: str) -> bool:
    try:
        return isinstance(json.loads(text or "{}"), dict)
    except ValueError:
        return False


def _ports(spec: TaskSpec) -> list[list[tuple[Any, ...]]]:
    return [[(p.name, p.modality, p.required, p.many) for p in ports] for ports in (spec.inputs, spec.outputs)]


def _card_flaw(card: ModelCard, tasks: set[str]) -> tuple[str, str] | None:
    if card.task not in tasks:
        return (
            f"the model's task {card.task} is not among the tasks",
            "Describe returns a TaskSpec for the task of every card",
        )
    if not _MODEL_ID.fullmatch(card.id):
        return "the model id is invalid", "an id of letters, digits and . _ / -"
    if card.state == MODEL_STATE_FAILED and not card.failure:
        return "the model is FAILED and the card's failure is empty", "cause and remedy in the card's failure"
    return None


def _missing_fields(described: DescribeResponse) -> Iterator[Finding]:
    """Fields that model cards leave empty, each with its models."""
    missing: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for card in described.models:
        for field in _FIELD_PURPOSES:
            has_value = getattr(card, field) or (field == "revision" and card.location == MODEL_LOCATION_EXTERNAL)
            if not has_value:
                missing[field][card.id] = None
    for field, models in missing.items():
        named = ", ".join(list(models)[:_LISTED_MODELS])
        more = f" and {len(models) - _LISTED_MODELS} more" if len(models) > _LISTED_MODELS else ""
        yield warning(f"{field} of models", f"missing for {named}{more}", _FIELD_PURPOSES[field])


async def change_counter(target: Target, described: DescribeResponse) -> Finding:
    """Checks that Describe answers `unchanged` to the current revision."""
    again = await target.describe(described.revision)
    if again.revision == described.revision and not (again.unchanged and not again.models):
        remedy = "if known_revision is current, return only revision, unchanged and load"
        return wrong("change counter", "Describe repeats the whole description though nothing changed", remedy)
    return ok("change counter", f"revision {described.revision}")


async def health(target: Target, described: DescribeResponse) -> AsyncIterator[Finding]:
    """Checks the status of all names on grpc.health.v1."""
    any_usable = not described.models or any(card.state != MODEL_STATE_FAILED for card in described.models)
    expected = dict.fromkeys(("", "startup", "readiness", "liveness", SERVICE), True) | {"readiness": any_usable}
    loaded = set(described.load.loaded)
    expected |= {card.id: card.id in loaded for card in described.models}
    remedy = 'grpc.health.v1 knows "", startup, readiness, liveness, the service and each model (SERVING once loaded)'
    for name, serving in expected.items():
        try:
            status = await target.serves(name)
        except grpc.aio.AioRpcError as error:
            yield wrong("health", f"Check of grpc.health.v1: {failure_text(from_rpc(error), target.seconds)}", remedy)
            return
        if status is not serving:
            yield wrong("health", f"{name!r} is {_STATUS_NAMES[status]}, expected {_STATUS_NAMES[serving]}", remedy)
            return
    found = f"{len(expected)} names have the expected status"
    yield ok("health", found) if any_usable else warning("health", f"{found}; not ready because all models failed")


async def reflection(target: Target) -> Finding:
    """Checks that tools such as grpcurl can list the services."""
    remedy = f"serve grpc.reflection.v1 or v1alpha with {SERVICE}"
    try:
        services = await target.services()
    except grpc.aio.AioRpcError as error:
        return warning("reflection", failure_text(from_rpc(error), target.seconds), remedy)
    if SERVICE not in services:
        return warning("reflection", f"reflection lists {', '.join(services) or 'no service'}", remedy)
    return ok("reflection", f"{len(services)} services")
