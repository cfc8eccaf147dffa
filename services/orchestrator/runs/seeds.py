"""Seeds of random tasks: fixed per run and task, so that a retry or takeover gives the same result."""

import hashlib
import json

from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.task_pb2 import TaskSpec

PARAMETER = "seed"
_BITS = 53
"""Bits that a JSON number holds exactly in every implementation."""


def choose_seed(request: InferRequest, spec: TaskSpec, run_id: str, task_id: int) -> int:
    """The seed among the parameters, or one derived from run and task; 0 if the task has no seed parameter."""
    if all(parameter.name != PARAMETER for parameter in spec.parameters):
        return 0
    given = json.loads(request.parameters_json or "{}").get(PARAMETER)
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << _BITS:
        return given
    drawn = hashlib.sha256(f"{run_id}/{task_id}".encode()).digest()
    return int.from_bytes(drawn[:8]) >> (64 - _BITS)


def apply_seed(request: InferRequest, seed: int) -> None:
    """Sets a seed other than 0 in the request's parameters."""
    if seed:
        parameters = {**json.loads(request.parameters_json or "{}"), PARAMETER: seed}
        request.parameters_json = json.dumps(parameters, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
