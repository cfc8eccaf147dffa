"""What seconds of computing cost: the deployment's price table, applied once to every call of an expert."""

import re
from collections.abc import Iterable, Mapping

import structlog

from protos.hugginggpt.v1.usage_pb2 import Usage
from services.orchestrator import metrics

log = structlog.get_logger(__name__)

USED = "expert-used"
"""Trailing metadata of a call that failed: "cpu=0.125,gpu-l4=0.05", the seconds that it used, by pool."""

MOST_TOLD = 100
"""Pools without a price that are told; an expert that makes up ever more of them is not to fill the log."""

_NAME = re.compile(r"[a-z0-9._-]{1,64}")
_POOL = re.compile(r"([a-z0-9._-]{1,64})=(\d{1,9}(?:\.\d{1,9})?)")
_MOST_POOLS = 8
_MOST = 10**9
"""More seconds, tokens or money than one call can take."""


class Prices:
    """What a second costs, by pool.

    Args:
        table: in the currency of the deployment; empty: nothing has a price, and nothing is counted.
    """

    def __init__(self, table: Mapping[str, float]) -> None:
        self._table = table
        self._told: set[str] = set()

    def charge(self, usage: Usage, task: str, model: str) -> None:
        """Adds to a usage what its seconds cost, and counts that; a pool without a price costs nothing.

        What an expert says that can be no pool, no seconds, no tokens or no cost is left out.
        """
        _clean(usage)
        for number, (pool, seconds) in enumerate(tuple(usage.pool_seconds.items())):
            if number >= _MOST_POOLS or not _NAME.fullmatch(pool) or not 0 <= seconds <= _MOST:
                del usage.pool_seconds[pool]
            elif self._table:
                self._add(usage, pool, seconds, {"task": task, "model": model, "pool": pool})

    def _add(self, usage: Usage, pool: str, seconds: float, labels: Mapping[str, str]) -> None:
        price = self._table.get(pool)
        if price is None:
            self._tell(pool)
        else:
            usage.cost += price * seconds
            metrics.task_cost.add(price * seconds, labels)

    def _tell(self, pool: str) -> None:
        if pool not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(pool)
            log.warning("a pool has no price, and costs nothing", pool=pool, remedy="name it in ORCHESTRATOR_PRICES")


def _clean(usage: Usage) -> None:
    """Leaves out what would spoil the sums of a run, or keep it from ending."""
    counted = {
        "busy": usage.busy.ToNanoseconds() / 1e9,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": usage.cost,
    }
    for name, count in counted.items():
        if not 0 <= count <= _MOST:
            usage.ClearField(name)  # type: ignore[arg-type]  # it is one


def used(trailer: Iterable[tuple[str, str | bytes]]) -> dict[str, float]:
    """The seconds of a failed call, by pool; nothing where the expert does not tell."""
    told = next((text for name, text in trailer if name == USED and isinstance(text, str)), "")
    return {pool: float(seconds) for pool, seconds in _POOL.findall(told)[:_MOST_POOLS]}
