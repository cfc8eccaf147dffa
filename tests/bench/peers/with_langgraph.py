"""LangGraph with the benchmark's plans: python -m tests.bench.peers.with_langgraph ADDRESS.

ADDRESS is that of the scripted services. Each plan is built and compiled as a graph of its own: two nodes per task and
one for the response. Models are selected for all tasks in the first step; a task calls its model once its inputs exist.
A graph is compiled before it runs, so it waits for the whole plan. Without a checkpointer, nothing is stored.
"""

import asyncio
import operator
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

import grpc
from langgraph.graph import END, START, StateGraph

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


class State(TypedDict):
    """State of a graph: selected models and outputs, by task."""

    models: Annotated[dict[int, str], operator.or_]
    outputs: Annotated[dict[int, Value], operator.or_]


Node = Callable[[State], Awaitable[dict[str, Any]]]


class Graphs:
    """Runs plans of the scripted planner as graphs."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._planner = PlannerServiceStub(channel)
        self._selector = SelectorServiceStub(channel)
        self._expert = ExpertServiceStub(channel)
        self._responder = ResponderServiceStub(channel)

    async def run(self, script: Script) -> None:
        planned = self._planner.Plan(requests.plan(script.request), timeout=TIMEOUT_SECONDS)
        graph = StateGraph(State)
        needed = set[int]()
        tasks = [event.task async for event in planned if event.HasField("task")]
        for task in tasks:
            needs = requests.needs(task)
            needed.update(needs)
            graph.add_node(f"select {task.id}", self._select(task, script.request))
            graph.add_node(f"infer {task.id}", self._infer(task))
            graph.add_edge(START, f"select {task.id}")
            graph.add_edge([f"select {task.id}", *(f"infer {need}" for need in needs)], f"infer {task.id}")
        graph.add_node("answer", self._answer(script.request))
        graph.add_edge([f"infer {task.id}" for task in tasks if task.id not in needed], "answer")
        graph.add_edge("answer", END)
        await graph.compile().ainvoke({"models": {}, "outputs": {}}, {"recursion_limit": len(tasks) + 3})

    def _select(self, task: Task, request: str) -> Node:
        async def select(_: State) -> dict[str, Any]:
            selected = await self._selector.Select(requests.select(task, request), timeout=TIMEOUT_SECONDS)
            return {"models": {task.id: selected.candidates[0].candidate.model_id}}

        return select

    def _infer(self, task: Task) -> Node:
        async def infer(state: State) -> dict[str, Any]:
            call = requests.infer(task, state["models"][task.id], state["outputs"])
            reply = await self._expert.Infer(call, timeout=TIMEOUT_SECONDS)
            return {"outputs": {task.id: reply.outputs["text"]}}

        return infer

    def _answer(self, request: str) -> Node:
        async def answer(_: State) -> dict[str, Any]:
            async for _event in self._responder.Respond(requests.respond(request), timeout=TIMEOUT_SECONDS):
                pass
            return {}

        return answer


async def main(address: str) -> None:
    async with connect(address) as channel:
        await serve_runs(Graphs(channel).run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
