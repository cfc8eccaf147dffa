"""A process that exports metrics which tests cannot produce otherwise, such as GPU use and run takeovers."""

import asyncio
from collections.abc import Mapping

from experts.host import telemetry as telemetry_module
from services.common import logging, metrics
from services.orchestrator.metrics import runs_taken_over


class OneGpu:
    """Models on a GPU."""

    depths: Mapping[tuple[str, str], int] = {}
    memory: Mapping[tuple[str, str], int] = {("cuda:0", "models"): 3, ("cuda:0", "budget"): 4}
    utilization: Mapping[str, float] = {"cuda:0": 0.5}


async def main() -> None:
    models = OneGpu()
    telemetry_module.watch(models)
    async with metrics.exporting("rare", "127.0.0.1:0"):
        runs_taken_over.add(1)
        await asyncio.Event().wait()


if __name__ == "__main__":
    logging.setup("rare")
    asyncio.run(main())
