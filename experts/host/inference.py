"""One call through one model: its steps, on the threads where they belong."""

import asyncio
import time
from dataclasses import dataclass
from typing import Generic, TypeVar

from experts.host import strict_json, telemetry
from experts.host.batcher import Queue, Ran
from experts.host.handler import is_concurrent
from experts.host.loaded_model import Loaded
from experts.host.metering import cpus
from experts.host.model_errors import blaming
from experts.host.model_slot import Model
from experts.host.pipeline_threads import Journey, Steps
from experts.host.threads import Threads

T = TypeVar("T")


@dataclass(frozen=True)
class Done(Generic[T]):
    """What a call came to."""

    result: T
    busy_seconds: float
    """Its own: waiting excluded, and of the batch only its share."""


class Inference:
    """Runs calls; the CPU threads are shared by all models."""

    def __init__(self, cpu: Threads) -> None:
        self._cpu = cpu

    async def run(self, model: Model, steps: Steps[T]) -> Done[T]:
        """Loads the model if it is not, and gives it one call.

        Raises:
            InvalidRequest: the model cannot take the input.
            FailedPrecondition: LOAD_FAILED.
            OutOfMemory: the input or the result does not fit.
            ModelFailed: the model broke; the cause is in the log.
        """
        queue = model.queue
        async with model.used(steps.call) as loaded:
            with blaming(model.id):
                if hasattr(loaded.handler, "ask"):
                    ran, result = await self._elsewhere(loaded, queue, steps)
                elif is_concurrent(loaded.handler):
                    ran, result = await self._concurrently(loaded, queue, steps)
                elif queue.quiet and not steps.decodes:
                    ran, result = await self._at_once(loaded, queue, steps)
                else:
                    ran, result = await self._in_turn(model.task, loaded, queue, steps)
        own = steps.watch.seconds
        model.times.add(own + ran.seconds)
        return Done(result, own + ran.share)

    async def _at_once(self, loaded: Loaded, queue: Queue, steps: Steps[T]) -> tuple[Ran, T]:
        """On the device's thread alone: there is nothing to overlap with, and each change of threads costs 0.1 ms."""

        def whole() -> tuple[Ran, T | None, bool]:
            with cpus().used(steps.call):
                item, cost = steps.prepare(loaded)
                ran = queue.run_alone(loaded, item, cost, steps.call)
                if queue.shared:  # others came meanwhile: the device is theirs
                    return ran, None, False
                return ran, steps.finish(loaded, ran.raw), True

        ran, result, finished = await queue.thread.run(whole)
        if not finished:
            result = await self._cpu.run(steps.finish, loaded, ran.raw)
        return ran, result  # type: ignore[return-value]  # it is finished now

    async def _concurrently(self, loaded: Loaded, queue: Queue, steps: Steps[T]) -> tuple[Ran, T]:
        """On one CPU thread, which waits for worker processes: no call waits for another."""

        def whole() -> tuple[Ran, T]:
            if steps.call.cancelled:
                raise asyncio.CancelledError
            item, _ = steps.prepare(loaded)
            ran = queue.run_concurrently(loaded, item, steps.call)
            return ran, steps.finish(loaded, ran.raw)

        with queue.elsewhere():
            return await self._cpu.run(whole)

    async def _elsewhere(self, loaded: Loaded, queue: Queue, steps: Steps[T]) -> tuple[Ran, T]:
        """By a model that runs elsewhere: no call waits for another."""
        item, _ = await self._cpu.run(steps.prepare, loaded)
        with queue.elsewhere():
            began = time.monotonic()
            try:
                with telemetry.running(queue.model_id, 1, ()):
                    raw = await loaded.handler.ask(item, steps.call)  # type: ignore[union-attr]  # it has one
            finally:
                seconds = time.monotonic() - began
                if loaded.pool:
                    steps.call.uses(loaded.pool.name, seconds)
            telemetry.ran(queue.model_id, 1, seconds)
        return Ran(raw, seconds, seconds), await self._cpu.run(steps.finish, loaded, raw)

    async def _in_turn(self, task: str, loaded: Loaded, queue: Queue, steps: Steps[T]) -> tuple[Ran, T]:
        """In a batch; input is read and output written while the device is at other calls."""
        kind = f"{task} {strict_json.write(steps.parameters)}"
        return await Journey(self._cpu, queue, loaded, kind, steps).made()
