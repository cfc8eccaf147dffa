"""Replies of experts: checks their outputs and adds the cost of their usage."""

import re
from collections.abc import Iterable, Mapping

import structlog

from protos.hugginggpt.v1.artifact_pb2 import MODALITY_JSON, MODALITY_TEXT, Value
from protos.hugginggpt.v1.expert_pb2 import InferResponse
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common.errors import CorruptData
from services.orchestrator import metrics
from services.orchestrator.inline_values import is_json, is_too_large

log = structlog.get_logger(__name__)

_DIGEST = re.compile(r"[0-9a-f]{64}")

_REMEDY = "fix the expert: its reply must match the declared outputs of the task"

USED = "expert-used"
"""Trailing metadata of a failed call: seconds used by pool, such as "cpu=0.125,gpu-l4=0.05"."""

MAX_REPORTED = 100
"""Pools without a price that are logged, so that an expert with invented pool names cannot fill the log."""

_NAME = re.compile(r"[a-z0-9._-]{1,64}")
_POOL = re.compile(r"([a-z0-9._-]{1,64})=(\d{1,9}(?:\.\d{1,9})?)")
_MAX_POOLS = 8
_MAX_VALUE = 10**9
"""Limit of seconds, tokens and cost of one call."""


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
    if kind == "json" and not is_json(value.json):
        raise _invalid(port, "is not JSON")


def _invalid(port: Port, problem: str) -> CorruptData:
    return CorruptData(f"the expert's {port.name} {problem}", remedy=_REMEDY)


def _fits(port: Port, kind: str | None) -> bool:
    if port.modality == MODALITY_TEXT:
        return kind in {"text", "artifact"}
    if port.modality == MODALITY_JSON:
        return kind in {"json", "artifact"}
    return kind == "artifact"


class Prices:
    """Prices of a second by pool.

    Args:
        table: in the deployment's currency; if empty, no cost is counted.
    """

    def __init__(self, table: Mapping[str, float]) -> None:
        self._table = table
        self._reported: set[str] = set()

    def charge(self, usage: Usage, task: str, model: str) -> None:
        """Adds the cost of a usage's seconds to it and counts it; a pool without a price costs nothing.

        Values from the expert that are out of range are removed.
        """
        _remove_invalid(usage)
        for number, (pool, seconds) in enumerate(tuple(usage.pool_seconds.items())):
            if number >= _MAX_POOLS or not _NAME.fullmatch(pool) or not 0 <= seconds <= _MAX_VALUE:
                del usage.pool_seconds[pool]
            elif self._table:
                self._add(usage, pool, seconds, {"task": task, "model": model, "pool": pool})

    def _add(self, usage: Usage, pool: str, seconds: float, labels: Mapping[str, str]) -> None:
        price = self._table.get(pool)
        if price is None:
            self._report(pool)
        else:
            usage.cost += price * seconds
            metrics.task_cost.add(price * seconds, labels)

    def _report(self, pool: str) -> None:
        if pool not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(pool)
            log.warning("pool without a price", pool=pool, remedy="add it to ORCHESTRATOR_PRICES")


def _remove_invalid(usage: Usage) -> None:
    """Clears values out of range, which would make the run's totals wrong or overflow."""
    counted = {
        "busy": usage.busy.ToNanoseconds() / 1e9,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": usage.cost,
    }
    for name, count in counted.items():
        if not 0 <= count <= _MAX_VALUE:
            usage.ClearField(name)  # type: ignore[arg-type]  # it is one


def pool_seconds(trailer: Iterable[tuple[str, str | bytes]]) -> dict[str, float]:
    """Seconds of a failed call by pool; empty if the expert does not report them."""
    text = next((text for name, text in trailer if name == USED and isinstance(text, str)), "")
    return {pool: float(seconds) for pool, seconds in _POOL.findall(text)[:_MAX_POOLS]}
