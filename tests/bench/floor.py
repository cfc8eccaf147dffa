"""Bare gRPC server that echoes requests: python -m tests.bench.floor. It prints its address."""

import asyncio
import gc
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from protos.hugginggpt.v1 import expert_pb2 as pb
from services.common.server import new_event_loop
from tests.bench.processes import read_line, stop


async def echo(request: pb.InferRequest, _: object) -> pb.InferResponse:
    """Returns the inputs as outputs."""
    return pb.InferResponse(outputs=request.inputs)


@asynccontextmanager
async def floor() -> AsyncIterator[str]:
    """Starts the server; yields its address, and stops it after the block."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.bench.floor", stdout=PIPE)
    try:
        yield await read_line(process)
    finally:
        await stop(process)


async def main() -> None:
    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(echo, pb.InferRequest.FromString, pb.InferResponse.SerializeToString)
    service = pb.DESCRIPTOR.services_by_name["ExpertService"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Infer": method}),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    gc.collect()
    gc.freeze()  # as services do at their start
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
