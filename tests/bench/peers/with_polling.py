"""The first HuggingGPT's way to run a plan, in our own words: python -m tests.bench.peers.with_polling CAST.

The plan is waited for whole. Then one loop looks which tasks have all they need, and starts a thread for each; where it
finds none, it sleeps for half a second. In its thread a task has its model selected, calls it, and ends. Once all are
started, all are waited for; then the answer is written. Left out is what the loop does not need: its probing of ten
models for each task, which takes time of JARVIS and none here.
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
from tests.bench.load import PATIENCE_SECONDS
from tests.bench.peers import requests
from tests.bench.peers.attending import attend
from tests.bench.peers.polling import POLL_SECONDS
from tests.bench.shapes import Script

RUNS = 64
"""At once, at most."""


class Polling:
    """Calls the cast, a thread for each task."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._planner = PlannerServiceStub(channel)
        self._selector = SelectorServiceStub(channel)
        self._expert = ExpertServiceStub(channel)
        self._responder = ResponderServiceStub(channel)
        self._runs = ThreadPoolExecutor(RUNS)

    async def run(self, script: Script) -> None:
        await asyncio.get_running_loop().run_in_executor(self._runs, self._run, script.words)

    def _run(self, words: str) -> None:
        events = self._planner.Plan(requests.plan(words), timeout=PATIENCE_SECONDS)
        self._all([event.task for event in events if event.HasField("task")], words)
        for _ in self._responder.Respond(requests.respond(words), timeout=PATIENCE_SECONDS):
            pass

    def _all(self, pending: Sequence[Task], words: str) -> None:
        done, threads = dict[int, Value](), list[Thread]()
        while pending:
            ready = [task for task in pending if done.keys() >= set(requests.needs(task))]
            pending = [task for task in pending if task not in ready]
            started = [Thread(target=self._one, args=(task, words, done)) for task in ready]
            for thread in started:
                thread.start()
            threads += started
            if not ready:
                time.sleep(POLL_SECONDS)
        for thread in threads:
            thread.join()

    def _one(self, task: Task, words: str, done: dict[int, Value]) -> None:
        chosen = self._selector.Select(requests.select(task, words), timeout=PATIENCE_SECONDS)
        call = requests.infer(task, chosen.candidates[0].model_id, done)
        done[task.id] = self._expert.Infer(call, timeout=PATIENCE_SECONDS).outputs["text"]


async def main(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        await attend(Polling(channel).run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
