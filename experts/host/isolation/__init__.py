"""Runs native code, which cannot be interrupted, in processes that can be killed.

`run_isolated(function, …)` runs a function in one of a few worker processes, within limits on memory, processor time
and wall time. A `Pool` of an engine's own holds processes that load the engine once.
"""

from experts.host.isolation.limits import Budget, Limits
from experts.host.isolation.pool import Pool
from experts.host.isolation.runtime import (
    Configuration,
    current_limits,
    engine_pool,
    isolated_single,
    run_in_pool,
    run_isolated,
    running,
    use_call,
)
from experts.host.isolation.worker import is_worker, report_progress

__all__ = [
    "Budget",
    "Configuration",
    "Limits",
    "Pool",
    "current_limits",
    "engine_pool",
    "is_worker",
    "isolated_single",
    "report_progress",
    "run_in_pool",
    "run_isolated",
    "running",
    "use_call",
]
