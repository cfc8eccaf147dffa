"""Plain asyncio, the floor: python -m tests.bench.peers.with_asyncio CAST. Nothing is kept, nothing told."""

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
from tests.bench.load import PATIENCE_SECONDS
from tests.bench.peers import requests
from tests.bench.peers.attending import attend
from tests.bench.shapes import Script


class Direct:
    """Calls the cast in the order of the graph."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._planner = PlannerServiceStub(channel)
        self._selector = SelectorServiceStub(channel)
        self._expert = ExpertServiceStub(channel)
        self._responder = ResponderServiceStub(channel)

    async def run(self, script: Script) -> None:
        words, done = script.words, dict[int, asyncio.Task[Value]]()

        async def step(task: Task, model: asyncio.Task[str]) -> Value:
            given = {need: await done[need] for need in requests.needs(task)}
            reply = await self._expert.Infer(requests.infer(task, await model, given), timeout=PATIENCE_SECONDS)
            return reply.outputs["text"]

        async with asyncio.TaskGroup() as group:
            async for event in self._planner.Plan(requests.plan(words), timeout=PATIENCE_SECONDS):
                if event.HasField("task"):
                    choice = group.create_task(self._selected(event.task, words))
                    done[event.task.id] = group.create_task(step(event.task, choice))
        async for _ in self._responder.Respond(requests.respond(words), timeout=PATIENCE_SECONDS):
            pass

    async def _selected(self, task: Task, words: str) -> str:
        chosen = await self._selector.Select(requests.select(task, words), timeout=PATIENCE_SECONDS)
        return chosen.candidates[0].model_id


async def main(address: str) -> None:
    async with connect(address) as channel:
        await attend(Direct(channel).run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
