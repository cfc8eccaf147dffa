"""How soon the house stands."""

from tests.bench.local_stack import standing
from tests.bench.rows import Row


async def rows() -> list[Row]:
    async with standing(experts="lite") as house:
        ready = round(house.ready_seconds, 2)
    return [Row("cluster.house_ready_s", ready, "s", 5, note="python -m services, lite warm")]
