"""One call through one model: its steps, on the threads where they belong."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from experts.host import strict_json
from experts.host.batching import Queue, Ran
from experts.host.blame import blaming
from experts.host.handler import Inputs, Outputs, Parameters
from experts.host.loaded import Loaded
from experts.host.model import Model
from experts.host.progress import CallUnderWay
from experts.host.threads import Threads
from experts.host.times import Stopwatch

T = TypeVar("T")


@dataclass(frozen=True)
class Done(Generic[T]):
    """What a call came to."""

    result: T
    busy_seconds: float
    """Its own: waiting excluded, and of the batch only its share."""


@dataclass(frozen=True)
class Steps(Generic[T]):
    """What is to be done for one call."""

    read: Callable[[], Inputs]
    parameters: Parameters
    write: Callable[[Outputs], T]
    call: CallUnderWay

    def prepare(self, model: Loaded) -> tuple[Any, float]:
        """The item, and what it costs."""
        item = model.handler.prepare(self.read(), self.parameters)
        return item, model.handler.cost(item)

    def finish(self, model: Loaded, raw: Any) -> T:
        return self.write(model.handler.finish(raw))


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
        queue, watch = model.queue, Stopwatch()
        async with model.used(steps.call) as loaded:
            with blaming(model.id):
                if hasattr(loaded.handler, "ask"):
                    ran, result = await self._elsewhere(loaded, queue, steps, watch)
                elif queue.quiet:
                    ran, result = await self._at_once(loaded, queue, steps, watch)
                else:
                    ran, result = await self._in_turn(model.task, loaded, queue, steps, watch)
        model.times.add(watch.seconds + ran.seconds)
        return Done(result, watch.seconds + ran.share)

    async def _at_once(self, loaded: Loaded, queue: Queue, steps: Steps[T], watch: Stopwatch) -> tuple[Ran, T]:
        """On the device's thread alone: there is nothing to overlap with, and each change of threads costs 0.1 ms."""

        def whole() -> tuple[Ran, T | None, bool]:
            item, cost = watch.time(steps.prepare, loaded)
            ran = queue.run_alone(loaded, item, cost, steps.call)
            if queue.shared:  # others came meanwhile: the device is theirs
                return ran, None, False
            return ran, watch.time(steps.finish, loaded, ran.raw), True

        ran, result, finished = await queue.thread.run(whole)
        if not finished:
            result = await self._cpu.run(watch.time, steps.finish, loaded, ran.raw)
        return ran, result  # type: ignore[return-value]  # it is finished now

    async def _elsewhere(self, loaded: Loaded, queue: Queue, steps: Steps[T], watch: Stopwatch) -> tuple[Ran, T]:
        """By a model that runs elsewhere: no call waits for another."""
        item, _ = await self._cpu.run(watch.time, steps.prepare, loaded)
        with queue.elsewhere():
            began = time.monotonic()
            raw = await loaded.handler.ask(item, steps.call)  # type: ignore[union-attr]  # it has one
            seconds = time.monotonic() - began
        return Ran(raw, seconds, seconds), await self._cpu.run(watch.time, steps.finish, loaded, raw)

    async def _in_turn(
        self, task: str, loaded: Loaded, queue: Queue, steps: Steps[T], watch: Stopwatch
    ) -> tuple[Ran, T]:
        """In a batch; input is read and output written while the device is at other calls."""
        item, cost = await self._cpu.run(watch.time, steps.prepare, loaded)
        kind = f"{task} {strict_json.write(steps.parameters)}"
        ran = await queue.through(loaded, kind, item, cost, steps.call)
        return ran, await self._cpu.run(watch.time, steps.finish, loaded, ran.raw)
