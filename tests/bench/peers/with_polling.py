"""Scheduling of the original HuggingGPT, JARVIS, reimplemented: python -m tests.bench.peers.with_polling ADDRESS.

ADDRESS is that of the scripted services. The loop waits for the complete plan, then starts one thread for each task
whose dependencies are done; if there is none, it sleeps for half a second. A thread selects the task's model and calls
it. After all tasks the response is written. JARVIS' probing of ten models per task is omitted.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import grpc

from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.internal.v1.responder_pb2_grpc import ResponderServiceStub
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from protos.hugginggpt.v1.task_pb2 import Task
from tests.bench.load import TIMEOUT_SECONDS
from tests.bench.peers import requests
from tests.bench.peers.jarvis import POLL_SECONDS
from tests.bench.peers.program import serve_runs
from tests.bench.shapes import Script

RUNS = 64
"""Limit of concurrent runs."""


class Polling:
    """Calls the scripted services with one thread per task."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._planner = PlannerServiceStub(channel)
        self._selector = SelectorServiceStub(channel)
        self._expert = ExpertServiceStub(channel)
        self._responder = ResponderServiceStub(channel)
        self._runs = ThreadPoolExecutor(RUNS)

    async def run(self, script: Script) -> None:
        await asyncio.get_running_loop().run_in_executor(self._runs, self._run, script.request)

    def _run(self, request: str) -> None:
        events = self._planner.Plan(requests.plan(request), timeout=TIMEOUT_SECONDS)
        self._run_tasks([event.task for event in events if event.HasField("task")], request)
        for _ in self._responder.Respond(requests.respond(request), timeout=TIMEOUT_SECONDS):
            pass

    def _run_tasks(self, pending: Sequence[Task], request: str) -> None:
        done, threads = dict[int, Value](), list[Thread]()
        while pending:
            ready = [task for task in pending if done.keys() >= set(requests.needs(task))]
            pending = [task for task in pending if task not in ready]
            started = [Thread(target=self._run_task, args=(task, request, done)) for task in ready]
            for thread in started:
                thread.start()
            threads += started
            if not ready:
                time.sleep(POLL_SECONDS)
        for thread in threads:
            thread.join()

    def _run_task(self, task: Task, request: str, done: dict[int, Value]) -> None:
        chosen = self._selector.Select(requests.select(task, request), timeout=TIMEOUT_SECONDS)
        call = requests.infer(task, chosen.candidates[0].candidate.model_id, done)
        done[task.id] = self._expert.Infer(call, timeout=TIMEOUT_SECONDS).outputs["text"]


async def main(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        await serve_runs(Polling(channel).run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
