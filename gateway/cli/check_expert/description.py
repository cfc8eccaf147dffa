"""What an expert says of itself: its tasks, its cards, its health."""

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

from gateway.cli.check_expert.error_text import failure_text
from gateway.cli.check_expert.findings import ok, warning, wrong
from gateway.cli.check_expert.target import Target
from gateway.cli.doctor_finding import Finding
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
_WORDS = {True: "SERVING", False: "NOT_SERVING", None: "unknown"}
_NAMED = 3
"""So many models stand in a row; the rest is counted."""
_WHY = {
    "description": "people and the selector choose by the description",
    "license": "people choose by the license, an SPDX name",
    "revision": "results are used again only of a known revision: a commit, a tag or a version",
    "location": "MODEL_LOCATION_INTERNAL if it runs inside the deployment, MODEL_LOCATION_EXTERNAL if data leaves it",
}


def description(described: DescribeResponse) -> Iterator[Finding]:
    """Its tasks and cards."""
    if not _NAME.fullmatch(described.expert):
        yield wrong("name", f"its name is {described.expert!r}", "a short plain name: replicas share it")
    if not described.tasks:
        yield warning("tasks", "there are none", "what it cannot do without, such as a setting, says its log")
    for spec in described.tasks:
        if flaw := flaw_of(spec):
            yield wrong(f"task {spec.name}", *flaw)
    names = {spec.name for spec in described.tasks}
    for card in described.models:
        if complaint := _complaint(card, names):
            yield wrong(f"model {card.id}", *complaint)
    yield from _lacking(described)
    yield ok("description", _counted(described))


def _counted(described: DescribeResponse) -> str:
    failed = sum(card.state == MODEL_STATE_FAILED for card in described.models)
    trouble = f", {failed} of them in trouble" if failed else ""
    version = described.version or "unknown"
    counts = f"{len(described.tasks)} tasks, {len(described.models)} models"
    return f"{described.expert}, version {version}: {counts}{trouble}"


def flaw_of(spec: TaskSpec) -> tuple[str, str] | None:
    """What is wrong with a task so that it cannot be asked for, and what is expected."""
    standard = standard_tasks().get(spec.name)
    if standard and (_ports(spec) != _ports(standard)):
        return "has other ports than the standard task", "take them from protos/hugginggpt/v1/tasks.json"
    for port in (*spec.inputs, *spec.outputs):
        if not port.name or port.modality == MODALITY_UNSPECIFIED:
            return f"its port {port.name!r} has no name or no modality", "each port has both"
    for parameter in spec.parameters:
        if not _is_schema(parameter.json_schema):
            found = f"the json_schema of its parameter {parameter.name} is no JSON object"
            return found, 'such as {"type": "integer", "minimum": 1}'
    return None


def _is_schema(text: str) -> bool:
    try:
        return isinstance(json.loads(text or "{}"), dict)
    except ValueError:
        return False


def _ports(spec: TaskSpec) -> list[list[tuple[Any, ...]]]:
    return [[(p.name, p.modality, p.required, p.many) for p in ports] for ports in (spec.inputs, spec.outputs)]


def _complaint(card: ModelCard, tasks: set[str]) -> tuple[str, str] | None:
    if card.task not in tasks:
        return f"is for {card.task}, which is not among the tasks", "Describe names the TaskSpec of every card"
    if not _MODEL_ID.fullmatch(card.id):
        return "its id is no id", "letters, digits and . _ / -"
    if card.state == MODEL_STATE_FAILED and not card.failure:
        return "is FAILED and does not say why", "put cause and remedy into the card's failure"
    return None


def _lacking(described: DescribeResponse) -> Iterator[Finding]:
    """What cards leave out, each with the models that do."""
    lacking: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for card in described.models:
        for field in _WHY:
            known = getattr(card, field) or (field == "revision" and card.location == MODEL_LOCATION_EXTERNAL)
            if not known:
                lacking[field][card.id] = None
    for field, models in lacking.items():
        named = ", ".join(list(models)[:_NAMED])
        more = f" and {len(models) - _NAMED} more" if len(models) > _NAMED else ""
        yield warning(f"{field} of models", f"missing for {named}{more}", _WHY[field])


async def change_counter(target: Target, described: DescribeResponse) -> Finding:
    """Whether it says that nothing changed."""
    again = await target.describe(described.revision)
    if again.revision == described.revision and not (again.unchanged and not again.models):
        remedy = "asked with known_revision, and nothing is new: answer with revision, unchanged and load alone"
        return wrong("change counter", "it repeats all it said though nothing changed", remedy)
    return ok("change counter", f"revision {described.revision}")


async def health(target: Target, described: DescribeResponse) -> AsyncIterator[Finding]:
    """Its names on grpc.health.v1."""
    any_use = not described.models or any(card.state != MODEL_STATE_FAILED for card in described.models)
    expected = dict.fromkeys(("", "startup", "readiness", "liveness", SERVICE), True) | {"readiness": any_use}
    loaded = set(described.load.loaded)
    expected |= {card.id: card.id in loaded for card in described.models}
    remedy = 'on grpc.health.v1: "", startup, readiness, liveness, the service, and each model (serving once loaded)'
    for name, serving in expected.items():
        try:
            said = await target.serves(name)
        except grpc.aio.AioRpcError as error:
            yield wrong("health", f"Check of grpc.health.v1: {failure_text(from_rpc(error), target.seconds)}", remedy)
            return
        if said is not serving:
            yield wrong("health", f"{name!r} is {_WORDS[said]}, where {_WORDS[serving]} is expected", remedy)
            return
    found = f"{len(expected)} names say what they should"
    yield ok("health", found) if any_use else warning("health", f"{found}: not ready, all models are in trouble")


async def reflection(target: Target) -> Finding:
    """Whether tools such as grpcurl can ask what there is."""
    remedy = f"serve grpc.reflection.v1alpha, and name {SERVICE} there"
    try:
        services = await target.services()
    except grpc.aio.AioRpcError as error:
        return warning("reflection", failure_text(from_rpc(error), target.seconds), remedy)
    if SERVICE not in services:
        return warning("reflection", f"knows {', '.join(services) or 'no service'}", remedy)
    return ok("reflection", f"{len(services)} services")
