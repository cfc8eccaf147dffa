"""PlannerService over gRPC."""

import asyncio
from typing import Any

from protos.hugginggpt.internal.v1 import planner_pb2 as pb
from protos.hugginggpt.internal.v1 import planner_pb2_grpc as rpc
from services.planner.plan import Note, Task
from services.planner.planner import Planner, Step
from services.planner.request import Request

LLM_SHARE = 0.8
"""Share of the call's time for the LLM; the rest is reserved for planning without it."""


class PlannerServicer(rpc.PlannerServiceServicer):
    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    async def Plan(self, request: pb.PlanRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        lock = asyncio.Lock()  # gRPC allows one write at a time

        async def emit(step: Step) -> None:
            async with lock:
                await context.write(_to_event(step))

        remaining_seconds = context.time_remaining()
        await self._planner.plan(
            Request.from_proto(request), emit, seconds=remaining_seconds and remaining_seconds * LLM_SHARE
        )


def _to_event(step: Step) -> pb.PlanEvent:
    match step:
        case Task():
            return pb.PlanEvent(task=step.to_proto())
        case Note():
            return pb.PlanEvent(note=step.to_proto())
        case _:
            return pb.PlanEvent(end=pb.PlanEnd(decision=step.to_proto()))
