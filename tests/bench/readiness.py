"""Start time of the local stack: until it answers requests."""

from tests.bench.local_stack import start_local_stack
from tests.bench.rows import Row


async def rows() -> list[Row]:
    async with start_local_stack(experts="lite") as stack:
        ready = round(stack.ready_seconds, 2)
    return [Row("cluster.stack_ready_s", ready, "s", 5, note="python -m services.local, lite warm")]
