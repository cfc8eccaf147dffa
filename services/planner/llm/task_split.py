"""One task as written, several tasks as run: one for each of several things given to a port that takes one."""

from collections.abc import Mapping, Sequence

from services.planner.llm.plan_format import Wrong
from services.planner.plan import SPLIT_LIMIT, Argument, Many, Single, Spec
from services.planner.plan_check import listed


def split(given: Mapping[str, Sequence[Single]], spec: Spec) -> list[dict[str, Argument]] | Wrong:
    """The arguments of each task that one becomes; ports with equally many are taken in step."""
    many = {port.name for port in spec.inputs if port.many}
    sizes = {name: len(items) for name, items in given.items() if name not in many and len(items) > 1}
    if len(set(sizes.values())) > 1:
        counts = " and ".join(f"{name} {size}" for name, size in sizes.items())
        return Wrong(f"its ports are given different numbers of things: {counts}", "write one task for each")
    tasks = max(sizes.values(), default=1)
    if tasks > SPLIT_LIMIT:
        message = f"port {listed(sizes)} is given {tasks} things, and one task becomes {SPLIT_LIMIT} at most"
        return Wrong(message, f"give it {SPLIT_LIMIT} or fewer")
    return [
        {name: Many(tuple(items)) if name in many else items[at % len(items)] for name, items in given.items()}
        for at in range(tasks)
    ]
