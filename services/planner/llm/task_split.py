"""Splits a task with several values for a single-value port into several tasks."""

from collections.abc import Mapping, Sequence

from services.planner.plan import SPLIT_LIMIT, Argument, Many, Single
from services.planner.plan_check import Fault, list_names
from services.planner.task_spec import Spec


def split(given: Mapping[str, Sequence[Single]], spec: Spec) -> list[dict[str, Argument]] | Fault:
    """Returns the arguments of each resulting task; ports with equal numbers of values are paired."""
    many = {port.name for port in spec.inputs if port.many}
    sizes = {name: len(items) for name, items in given.items() if name not in many and len(items) > 1}
    if len(set(sizes.values())) > 1:
        counts = " and ".join(f"{name} {size}" for name, size in sizes.items())
        return Fault(f"its ports are given different numbers of things: {counts}", "write one task for each")
    tasks = max(sizes.values(), default=1)
    if tasks > SPLIT_LIMIT:
        message = f"port {list_names(sizes)} is given {tasks} things, and one task becomes {SPLIT_LIMIT} at most"
        return Fault(message, f"give it {SPLIT_LIMIT} or fewer")
    return [
        {name: Many(tuple(items)) if name in many else items[at % len(items)] for name, items in given.items()}
        for at in range(tasks)
    ]
