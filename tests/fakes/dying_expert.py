"""Expert whose process exits in the first call; `python -m tests.fakes.dying_expert` prints its address."""

import asyncio
import os
from functools import partial
from typing import Any

from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from services.common import logging
from services.common.server import serving
from tests.fakes.broken_experts import MinimalExpert


class ExitsInCall(MinimalExpert):
    """Exits its process in the first call."""

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        os._exit(1)


async def main() -> None:
    logging.setup("dying")  # logs to standard error
    expert = ExitsInCall()
    service = pb.DESCRIPTOR.services_by_name["ExpertService"]
    async with serving(partial(rpc.add_ExpertServiceServicer_to_server, expert), service) as running:
        await running.set_ready(*expert.names)
        print(f"127.0.0.1:{running.port}", flush=True)  # the test reads it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
