"""One call's way through the threads: read on one, run on the device's, written on a third.

Each hands it to the next. The event loop, which has others to talk to, is only told of the end.
"""

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from experts.host.active_calls import CallUnderWay
from experts.host.batch_composer import Member
from experts.host.batcher import Queue, Ran
from experts.host.handler import Inputs, Outputs, Parameters
from experts.host.isolation import in_call
from experts.host.loaded_model import Loaded
from experts.host.metering import cpus
from experts.host.threads import Promise, Threads
from experts.host.timing import Stopwatch

T = TypeVar("T")


@dataclass(frozen=True)
class Steps(Generic[T]):
    """What is to be done for one call."""

    read: Callable[[], Inputs]
    parameters: Parameters
    write: Callable[[Outputs], T]
    call: CallUnderWay
    decodes: bool = False
    """A file is decoded to read the input, which may take long: not on the device's thread."""
    watch: Stopwatch = field(default_factory=Stopwatch)
    """Counts what it takes to read and write."""

    def prepare(self, model: Loaded) -> tuple[Any, float]:
        """The item, and what it costs."""
        with cpus().used(self.call), in_call(self.call):
            return self.watch.time(self._prepared, model)

    def finish(self, model: Loaded, raw: Any) -> T:
        with cpus().used(self.call), in_call(self.call):
            return self.watch.time(self._finished, model, raw)

    def _prepared(self, model: Loaded) -> tuple[Any, float]:
        item = model.handler.prepare(self.read(), self.parameters)
        return item, float(model.handler.cost(item))

    def _finished(self, model: Loaded, raw: Any) -> T:
        return self.write(model.handler.finish(raw))


class Journey(Generic[T]):
    """One call on its way, in a batch with others of its kind."""

    def __init__(self, cpu: Threads, queue: Queue, loaded: Loaded, kind: str, steps: Steps[T]) -> None:
        self._cpu, self._queue, self._loaded, self._kind, self._steps = cpu, queue, loaded, kind, steps
        self._context = copy_context()
        self._end: Promise[tuple[Ran, T]] = Promise()

    async def made(self) -> tuple[Ran, T]:
        """What came of it.

        Raises:
            DeadlineExceeded: it was not its turn in time.
            Exception: whatever the model raised.
        """
        self._cpu.post(self._prepare)
        return await self._end.future

    def _prepare(self) -> None:
        if self._steps.call.cancelled:
            return
        try:
            item, cost = self._context.run(self._steps.prepare, self._loaded)
        except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it
            self._end.fail(error)
        else:
            member = Member(self._loaded, self._kind, item, cost, self._steps.call, self._context, self._ran)
            self._queue.enter(member)

    def _ran(self, outcome: Ran | Exception) -> None:
        if isinstance(outcome, Exception):
            self._end.fail(outcome)
        else:
            self._cpu.post(lambda: self._finish(outcome))

    def _finish(self, ran: Ran) -> None:
        if self._steps.call.cancelled:
            return
        try:
            self._end.keep((ran, self._context.run(self._steps.finish, self._loaded, ran.raw)))
        except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it
            self._end.fail(error)
