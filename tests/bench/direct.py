"""The same calls without an orchestrator: plain asyncio, nothing kept, nothing told. What is left is the floor."""

import asyncio
import time

import grpc

from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from protos.hugginggpt.v1.planner_pb2 import PlanRequest
from protos.hugginggpt.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.v1.responder_pb2 import RespondRequest
from protos.hugginggpt.v1.responder_pb2_grpc import ResponderServiceStub
from protos.hugginggpt.v1.selector_pb2 import SelectRequest
from protos.hugginggpt.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1.types_pb2 import Task, Turn, Value
from tests.bench.load import PATIENCE_SECONDS
from tests.bench.shapes import Script


class Direct:
    """Calls the cast in the order of the graph."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._planner = PlannerServiceStub(channel)
        self._selector = SelectorServiceStub(channel)
        self._expert = ExpertServiceStub(channel)
        self._responder = ResponderServiceStub(channel)

    async def run(self, script: Script) -> float:
        """Seconds from asking the planner to the end of the answer."""
        begun = time.perf_counter()
        said = [Turn(text=script.words)]
        done: dict[int, asyncio.Task[Value]] = {}

        async def selected(task: Task) -> str:
            chosen = await self._selector.Select(
                SelectRequest(task=task, request=script.words), timeout=PATIENCE_SECONDS
            )
            return chosen.candidates[0].model_id

        async def step(task: Task, model: asyncio.Task[str]) -> Value:
            inputs = {
                name: await done[argument.reference.task_id] if argument.HasField("reference") else argument.value
                for name, argument in task.arguments.items()
            }
            call = InferRequest(task=task.task, model=await model, inputs=inputs)
            reply = await self._expert.Infer(call, timeout=PATIENCE_SECONDS)
            return reply.outputs["text"]

        async with asyncio.TaskGroup() as group:
            async for event in self._planner.Plan(PlanRequest(conversation=said), timeout=PATIENCE_SECONDS):
                if event.HasField("task"):
                    choice = group.create_task(selected(event.task))
                    done[event.task.id] = group.create_task(step(event.task, choice))
        async for _ in self._responder.Respond(RespondRequest(conversation=said), timeout=PATIENCE_SECONDS):
            pass
        return time.perf_counter() - begun
