"""How long a plan takes the first HuggingGPT, by arithmetic."""

from math import inf

from tests.bench.shapes import Script

POLL_SECONDS = 0.5
"""What its loop sleeps where no task can be started."""

OWN_SECONDS, REST_SECONDS = 0.012, 0.018
"""What it takes of its own for a task, and for the rest of a run: a fit to its published medians."""


def lasts(script: Script) -> float:
    """Seconds from request to answer."""
    now = script.plan + (len(script.graph) - 1) * script.gap
    takes = {task_id: script.select + seconds + OWN_SECONDS for task_id, seconds in script.seconds().items()}
    pending, ends = dict(script.graph), dict[int, float]()
    while pending:
        ready = [task_id for task_id, needs in pending.items() if all(ends.get(need, inf) <= now for need in needs)]
        for task_id in ready:
            ends[task_id] = now + takes[task_id]
            del pending[task_id]
        if not ready:
            now += POLL_SECONDS
    return max(ends.values()) + script.answer + REST_SECONDS
