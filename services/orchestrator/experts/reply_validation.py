"""What an expert's reply must be."""

import json
import re

from protos.hugginggpt.v1.artifact_pb2 import MODALITY_JSON, MODALITY_TEXT, Value
from protos.hugginggpt.v1.expert_pb2 import InferResponse
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common.errors import CorruptData
from services.orchestrator.runs.arguments import is_too_long

_DIGEST = re.compile(r"[0-9a-f]{64}")

_REMEDY = "the expert is at fault: see what its task promises, and correct it"


def check(reply: InferResponse, spec: TaskSpec) -> None:
    """Holds a reply against the ports of its task.

    Raises:
        CorruptData: a required output is missing, an unknown one is there, or one cannot be what its port says.
    """
    ports = {port.name: port for port in spec.outputs}
    for name, port in ports.items():
        if port.required and name not in reply.outputs:
            raise CorruptData(f"the expert's reply lacks {name}, which {spec.name} promises", remedy=_REMEDY)
    for name, value in reply.outputs.items():
        if name not in ports:
            raise CorruptData(f"the expert's reply has {name}, which {spec.name} does not know", remedy=_REMEDY)
        _check(ports[name], value)


def _check(port: Port, value: Value) -> None:
    kind = value.WhichOneof("kind")
    if not _fits(port, kind):
        raise _broken(port, f"is {kind or 'empty'}, which its port cannot carry")
    if kind == "artifact" and not _DIGEST.fullmatch(value.artifact.sha256):
        raise _broken(port, "is an artifact without a digest of 64 hexadecimal digits")
    if is_too_long(value):
        raise _broken(port, f"has {value.ByteSize() // 1024} KiB inline, where more than 256 are to be an artifact")
    if kind == "json" and not _is_json(value.json):
        raise _broken(port, "is not JSON")


def _broken(port: Port, complaint: str) -> CorruptData:
    return CorruptData(f"the expert's {port.name} {complaint}", remedy=_REMEDY)


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
