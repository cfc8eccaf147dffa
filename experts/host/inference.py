"""One call through one model: its steps, on the threads where they belong."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from experts.host.handler import Inputs, Outputs, Parameters
from experts.host.models import Model, State
from experts.host.progress import CallUnderWay
from experts.host.threads import Threads
from experts.host.times import Stopwatch
from services.runtime.errors import ModelFailed, OutOfMemory, ServiceError

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Done(Generic[T]):
    """What a call came to."""

    result: T
    busy_seconds: float
    """Waiting excluded."""


class Inference:
    """Runs calls; the CPU threads are shared by all models."""

    def __init__(self, cpu: Threads) -> None:
        self._cpu = cpu

    async def run(
        self,
        model: Model,
        read: Callable[[], Inputs],
        parameters: Parameters,
        write: Callable[[Outputs], T],
        call: CallUnderWay,
    ) -> Done[T]:
        """Loads the model if it is not, and gives it one call.

        Raises:
            InvalidRequest: the model cannot take the input.
            FailedPrecondition: LOAD_FAILED.
            OutOfMemory: the input or the result does not fit.
            ModelFailed: the model broke; the cause is in the log.
        """
        if model.state is not State.READY:
            call.progress(0, "loading the model")
        handler, queue, watch = await model.handler(), model.queue, Stopwatch()

        def prepare() -> Any:
            return handler.prepare(read(), parameters)

        def finish(raw: Any) -> T:
            return write(handler.finish(raw))

        with _blaming(model.id):
            if queue.quiet:  # there is nothing to overlap with, and each change of threads costs 0.1 ms
                result = await queue.thread.run(watch.time, lambda: finish(queue.run_here(handler, prepare(), call)))
            else:
                item = await self._cpu.run(watch.time, prepare)
                raw = await queue.thread.run(watch.time, queue.run_here, handler, item, call)
                result = await self._cpu.run(watch.time, finish, raw)
        model.times.add(watch.seconds)
        return Done(result, watch.seconds)


@contextmanager
def _blaming(model_id: str) -> Iterator[None]:
    """Turns what is no expected failure into one that says nothing of the input, to the caller as to the log."""
    try:
        yield
    except ServiceError:
        raise
    except MemoryError:
        raise OutOfMemory(
            f"{model_id} ran out of memory", remedy="send a smaller input, or give the expert more memory"
        ) from None
    except Exception as error:
        where = traceback.format_tb(error.__traceback__)
        log.error("model failed", model=model_id, error=type(error).__name__, where=where)  # noqa: TRY400  # the message may quote the input
        raise ModelFailed(
            f"{model_id} failed on this input: {type(error).__name__}",
            remedy="try another input or another model; the expert's log has the place",
        ) from error
