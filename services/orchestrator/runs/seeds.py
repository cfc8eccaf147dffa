"""Seeds of tasks that draw at random: fixed per run and task, so that a retry or another owner gives the same thing."""

import hashlib
import json

from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.task_pb2 import TaskSpec

PARAMETER = "seed"
_BITS = 53
"""What a JSON number holds exactly everywhere."""


def seed_of(request: InferRequest, spec: TaskSpec, run_id: str, task_id: int) -> int:
    """The seed of a call: that among its parameters, else one of its own; 0 if its kind of task draws nothing."""
    if all(parameter.name != PARAMETER for parameter in spec.parameters):
        return 0
    given = json.loads(request.parameters_json or "{}").get(PARAMETER)
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << _BITS:
        return given
    drawn = hashlib.sha256(f"{run_id}/{task_id}".encode()).digest()
    return int.from_bytes(drawn[:8]) >> (64 - _BITS)


def fix(request: InferRequest, seed: int) -> None:
    """Puts a seed other than 0 among the parameters."""
    if seed:
        parameters = {**json.loads(request.parameters_json or "{}"), PARAMETER: seed}
        request.parameters_json = json.dumps(parameters, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
