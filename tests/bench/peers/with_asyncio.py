"""Plain asyncio, without storage or events: python -m tests.bench.peers.with_asyncio ADDRESS.

ADDRESS is that of the scripted services.
"""

import asyncio
import sys

import grpc

from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.internal.v1.responder_pb2_grpc import ResponderServiceStub
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from protos.hugginggpt.v1.task_pb2 import Task
from services.common.channel import connect
from tests.bench.load import TIMEOUT_SECONDS
from tests.bench.peers import requests
from tests.bench.peers.program import serve_runs
from tests.bench.shapes import Script


class Direct:
    """Calls the scripted services in the order of the graph."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._planner = PlannerServiceStub(channel)
        self._selector = SelectorServiceStub(channel)
        self._expert = ExpertServiceStub(channel)
        self._responder = ResponderServiceStub(channel)

    async def run(self, script: Script) -> None:
        text, done = script.request, dict[int, asyncio.Task[Value]]()

        async def step(task: Task, model: asyncio.Task[str]) -> Value:
            outputs = {need: await done[need] for need in requests.needs(task)}
            reply = await self._expert.Infer(requests.infer(task, await model, outputs), timeout=TIMEOUT_SECONDS)
            return reply.outputs["text"]

        async with asyncio.TaskGroup() as group:
            async for event in self._planner.Plan(requests.plan(text), timeout=TIMEOUT_SECONDS):
                if event.HasField("task"):
                    choice = group.create_task(self._selected(event.task, text))
                    done[event.task.id] = group.create_task(step(event.task, choice))
        async for _ in self._responder.Respond(requests.respond(text), timeout=TIMEOUT_SECONDS):
            pass

    async def _selected(self, task: Task, text: str) -> str:
        chosen = await self._selector.Select(requests.select(task, text), timeout=TIMEOUT_SECONDS)
        return chosen.candidates[0].candidate.model_id


async def main(address: str) -> None:
    async with connect(address) as channel:
        await serve_runs(Direct(channel).run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
