"""Runs of the benchmark's graphs by plain asyncio, the reference for runs through the services.

It calls the same LLM and the same expert, alternately with the services. It stores nothing, reports no events and
validates nothing.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from services.common.channel import dial
from tests.bench.endtoend import scripted_llm
from tests.bench.endtoend.controllers import Controller
from tests.bench.shapes import INPUTS, TASK, Script

TIMEOUT_SECONDS = 120.0
CANDIDATES = "\n".join(json.dumps({"id": f"{TASK}-{size}"}) for size in ("large", "small"))


class PlainClient:
    """Calls LLM and expert in the order of a graph.

    Args:
        llm: client of the LLM.
        channel: to the expert.
    """

    def __init__(self, llm: httpx.AsyncClient, channel: grpc.aio.Channel) -> None:
        self._llm = llm
        self._expert = ExpertServiceStub(channel)

    @classmethod
    @asynccontextmanager
    async def connected(cls, llm: str, expert: str) -> AsyncIterator["PlainClient"]:
        """A client of the LLM at this URL and the expert at this address."""
        limits = httpx.Limits(max_connections=None)
        async with (
            httpx.AsyncClient(base_url=llm, timeout=TIMEOUT_SECONDS, limits=limits) as client,
            dial(expert) as channel,
        ):
            await channel.channel_ready()
            yield cls(client, channel)

    async def run(self, controller: Controller, script: Script, number: int) -> float:
        """Makes one run, and returns its seconds.

        Args:
            controller: whose roles call the LLM.
            script: the graph and the seconds of its tasks.
            number: unique number of the request.
        """
        started, seconds, done = time.perf_counter(), script.seconds(), dict[int, asyncio.Task[Value]]()

        async def step(task_id: int, needs: Sequence[int]) -> Value:
            if "selector" in controller.llm_roles:
                await self._select()
            given = {name: await done[need] for name, need in zip(INPUTS, needs, strict=False)}
            return await self._infer(given, seconds[task_id])

        async with asyncio.TaskGroup() as group:
            async for task_id in self._planned(controller, script, number):
                done[task_id] = group.create_task(step(task_id, script.graph[task_id]))
        if controller.answers and "responder" in controller.llm_roles:
            async for _ in self._completion("You answer.", {"results": "done"}):
                pass
        return time.perf_counter() - started

    async def _planned(self, controller: Controller, script: Script, number: int) -> AsyncIterator[int]:
        """Ids of the tasks, each as soon as it is planned."""
        if "planner" not in controller.llm_roles:
            for task_id in script.graph:
                yield task_id
            return
        written, ids = "", iter(script.graph)
        async for piece in self._completion("You plan.", {"request": scripted_llm.request(script, number)}):
            before, written = len(scripted_llm.ends(written)), written + piece
            for _ in range(len(scripted_llm.ends(written)) - before):
                yield next(ids)

    async def _select(self) -> None:
        async for _ in self._completion("You choose.", {"candidates": CANDIDATES}):
            pass

    async def _infer(self, given: Mapping[str, Value], seconds: float) -> Value:
        inputs = given or {INPUTS[0]: Value(text="one two three")}
        parameters = json.dumps({"seconds": seconds})
        request = InferRequest(task=TASK, model=f"{TASK}-large", inputs=inputs, parameters_json=parameters)
        reply = await self._expert.Infer(request, timeout=TIMEOUT_SECONDS)
        return reply.outputs["text"]

    async def _completion(self, instruction: str, data: Mapping[str, str]) -> AsyncIterator[str]:
        """Text chunks of one streamed completion."""
        quoted = [f'<data name="{name}" id="x">\n{text}\n</data id="x">' for name, text in data.items()]
        body = {
            "model": "scripted",
            "stream": True,
            "messages": [{"role": "user", "content": "\n".join([instruction, *quoted])}],
        }
        async with self._llm.stream("POST", "/chat/completions", json=body) as reply:
            reply.raise_for_status()
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    yield _content(json.loads(line.removeprefix("data: ")))


def _content(chunk: Any) -> str:
    return "".join(choice["delta"].get("content", "") for choice in chunk["choices"])
