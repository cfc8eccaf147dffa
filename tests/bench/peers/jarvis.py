"""Calculated duration of a plan in the original HuggingGPT, JARVIS."""

from math import inf

from tests.bench.shapes import Script

POLL_SECONDS = 0.5
"""Sleep of its scheduling loop when no task can start."""

TASK_SECONDS, RUN_SECONDS = 0.012, 0.018
"""Overhead per task and per run, fitted to its published medians."""


def jarvis_seconds(script: Script) -> float:
    """Seconds from request to response."""
    now = script.plan + (len(script.graph) - 1) * script.gap
    durations = {task_id: script.select + seconds + TASK_SECONDS for task_id, seconds in script.seconds().items()}
    pending, ends = dict(script.graph), dict[int, float]()
    while pending:
        ready = [task_id for task_id, needs in pending.items() if all(ends.get(need, inf) <= now for need in needs)]
        for task_id in ready:
            ends[task_id] = now + durations[task_id]
            del pending[task_id]
        if not ready:
            now += POLL_SECONDS
    return max(ends.values()) + script.answer + RUN_SECONDS
