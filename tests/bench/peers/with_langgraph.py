"""LangGraph with the benchmark's plans: python -m tests.bench.peers.with_langgraph ADDRESS.

ADDRESS is that of the scripted services. Each plan is built and compiled as a graph of its own: one node per task,
which selects and calls its model, and one for the response. Without a checkpointer, nothing is stored.
"""

import asyncio
import operator
import sys
from collections.abc import Awaitable, Callable, Sequence
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
    """State of a graph: outputs by task."""

    done: Annotated[dict[int, Value], operator.or_]


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
        tasks = [event.task async for event in planned if event.HasField("task")]
        graph = _compiled(tasks, lambda task: self._step(task, script.request), self._answer(script.request))
        await graph.ainvoke({"done": {}}, {"recursion_limit": len(tasks) + 2})

    def _step(self, task: Task, request: str) -> Node:
        async def step(state: State) -> dict[str, Any]:
            chosen = await self._selector.Select(requests.select(task, request), timeout=TIMEOUT_SECONDS)
            call = requests.infer(task, chosen.candidates[0].candidate.model_id, state["done"])
            reply = await self._expert.Infer(call, timeout=TIMEOUT_SECONDS)
            return {"done": {task.id: reply.outputs["text"]}}

        return step

    def _answer(self, request: str) -> Node:
        async def answer(_: State) -> dict[str, Any]:
            async for _event in self._responder.Respond(requests.respond(request), timeout=TIMEOUT_SECONDS):
                pass
            return {}

        return answer


def _compiled(tasks: Sequence[Task], step: Callable[[Task], Node], answer: Node) -> Any:
    """Compiles the graph of a plan; a node with several dependencies waits for all of them."""
    graph, needed = StateGraph(State), {need for task in tasks for need in requests.needs(task)}
    for task in tasks:
        needs = [str(need) for need in requests.needs(task)]
        graph.add_node(str(task.id), step(task))
        graph.add_edge(needs or START, str(task.id))
    graph.add_node("answer", answer)
    graph.add_edge([str(task.id) for task in tasks if task.id not in needed], "answer")
    graph.add_edge("answer", END)
    return graph.compile()


async def main(address: str) -> None:
    async with connect(address) as channel:
        await serve_runs(Graphs(channel).run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
