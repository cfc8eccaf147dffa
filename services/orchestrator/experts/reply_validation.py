"""Validation of experts' replies."""

import json
import re

from protos.hugginggpt.v1.artifact_pb2 import MODALITY_JSON, MODALITY_TEXT, Value
from protos.hugginggpt.v1.expert_pb2 import InferResponse
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common.errors import CorruptData
from services.orchestrator.value_limits import is_too_large

_DIGEST = re.compile(r"[0-9a-f]{64}")

_REMEDY = "fix the expert: its reply must match the declared outputs of the task"


def check_reply(reply: InferResponse, spec: TaskSpec) -> None:
    """Checks a reply against the declared outputs of its task.

    Raises:
        CorruptData: a required output is missing, an output is not declared, or a value does not match its port.
    """
    ports = {port.name: port for port in spec.outputs}
    for name, port in ports.items():
        if port.required and name not in reply.outputs:
            raise CorruptData(f"the expert's reply lacks the required output {name} of {spec.name}", remedy=_REMEDY)
    for name, value in reply.outputs.items():
        if name not in ports:
            raise CorruptData(f"the expert's reply has {name}, which is no output of {spec.name}", remedy=_REMEDY)
        _check_value(ports[name], value)


def _check_value(port: Port, value: Value) -> None:
    kind = value.WhichOneof("kind")
    if not _fits(port, kind):
        raise _invalid(port, f"is {kind or 'empty'}, which its port cannot carry")
    if kind == "artifact" and not _DIGEST.fullmatch(value.artifact.sha256):
        raise _invalid(port, "is an artifact without a digest of 64 hexadecimal digits")
    if is_too_large(value):
        raise _invalid(port, f"has {value.ByteSize() // 1024} KiB inline; values above 256 KiB must be artifacts")
    if kind == "json" and not _is_json(value.json):
        raise _invalid(port, "is not JSON")


def _invalid(port: Port, problem: str) -> CorruptData:
    return CorruptData(f"the expert's {port.name} {problem}", remedy=_REMEDY)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _fits(port: Port, kind: str | None) -> bool:
    if port.modality == MODALITY_TEXT:
        return kind in {"text", "artifact"}
    if port.modality == MODALITY_JSON:
        return kind in {"json", "artifact"}
    return kind == "artifact"
