"""A model in a process of its own, seen from inside: python -m experts.host.worker FD.

The other end of FD is the expert's (workers.py). When that end closes, this process ends, whatever it is at.
"""

import os
import pickle
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from experts.host import load_context
from experts.host.devices import resident_bytes
from experts.host.handler import Handler, is_concurrent
from experts.host.isolation import running
from experts.host.model_errors import blaming
from experts.host.threads import Threads, sendable
from experts.host.worker_protocol import LOAD, Cancel, Progress, Reply, Request, Start, Told
from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common import call_context, logging


class Batch:
    """The calls of a batch, which are the other process's: a handler.Call."""

    def __init__(self, tell: Callable[[float, str], None]) -> None:
        self.cancelled = False
        self._tell = tell

    def progress(self, fraction: float, message: str = "") -> None:
        self._tell(fraction, message)


class Worker:
    """Does what comes down the connection: batches on one thread, the rest on others."""

    def __init__(self, connection: Connection, start: Start) -> None:
        self._connection, self._start = connection, start
        self._sending = threading.Lock()
        self._device, self._cpu = Threads("device"), Threads("cpu", start.threads, elastic=True)
        self._handler: Handler | None = None
        self._items: dict[int, Any] = {}
        self._batches: dict[int, Batch] = {}

    def serve(self) -> None:
        """Loads, and answers until nobody is there to ask."""
        self._do(self._device, LOAD, self._load)
        with suppress(EOFError, OSError):
            while True:
                message = self._connection.recv()
                if isinstance(message, Cancel):
                    if batch := self._batches.get(message.number):
                        batch.cancelled = True
                else:
                    self._take(message)

    def _take(self, request: Request) -> None:
        for item in request.forget:
            self._items.pop(item, None)
        if request.step == "run":
            self._batches[request.number] = Batch(partial(self._tell, request.number))
            self._do(self._device, request.number, partial(self._run, request))
        else:
            step = self._prepare if request.step == "prepare" else self._finish
            self._do(self._cpu, request.number, partial(step, request))

    def _do(self, threads: Threads, number: int, function: Callable[[], Any]) -> None:
        def job() -> None:
            try:
                with blaming(self._start.model_id):
                    reply = Reply(number, _raising_only_errors(function))
            except Exception as error:  # noqa: BLE001  # whoever waits must hear of it
                reply = Reply(number, error=error)
            self._batches.pop(number, None)
            self._send(reply)

        threads.post(job)

    def _load(self) -> Told:
        start = self._start
        tell = partial(self._tell, LOAD)
        with load_context.told(
            load_context.Loading(start.revision, tell, start.task, start.model_id, start.device, start.dtype)
        ):
            self._handler = handler = pickle.loads(start.loader)(start.model_id, start.device)  # noqa: S301  # our own parent's
        batching, revision = getattr(handler, "batching", None), getattr(handler, "revision", None) or ""
        return Told(batching, revision, resident_bytes(), elsewhere=hasattr(handler, "ask") or is_concurrent(handler))

    def _prepare(self, request: Request) -> float:
        inputs, parameters = request.given
        with call_context.use_caller(Caller.FromString(request.caller)):
            item = self._loaded.prepare(inputs, parameters)
            self._items[request.items[0]] = item
            return self._loaded.cost(item)

    def _run(self, request: Request) -> int:
        items = [self._items[item] for item in request.items]  # kept: should this fail, they run alone
        with call_context.use_caller(Caller.FromString(request.caller)):
            raws = self._loaded.run(items, self._batches[request.number])
        self._items |= dict(zip(request.items, raws, strict=False))
        return len(raws)

    def _finish(self, request: Request) -> Any:
        with call_context.use_caller(Caller.FromString(request.caller)):
            return dict(self._loaded.finish(self._items.pop(request.items[0])))

    @property
    def _loaded(self) -> Handler:
        assert self._handler  # noqa: S101  # the parent asks for nothing before it has heard of the load
        return self._handler

    def _tell(self, number: int, fraction: float, message: str) -> None:
        self._send(Progress(number, fraction, message))

    def _send(self, message: Any) -> None:
        with self._sending, suppress(OSError):  # the parent has gone, and this process is about to end
            try:
                self._connection.send(message)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                self._connection.send(Reply(message.number, error=sendable(error)))


def _raising_only_errors(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it
        raise sendable(error) from None


def main(descriptor: int) -> None:
    """Serves the parent at the other end of the descriptor."""
    connection = Connection(descriptor)
    start: Start = connection.recv()
    sys.path[:] = start.path
    level, style = start.log
    logging.setup(f"worker {start.model_id}", level=level, style=style)
    with running(start.isolation, ahead=False):
        Worker(connection, start).serve()
    os._exit(0)  # a thread may be stuck in native code, which is why there is this process


if __name__ == "__main__":
    main(int(sys.argv[1]))
