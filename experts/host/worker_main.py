"""Model worker process: python -m experts.host.worker_main FD.

FD is a socket to the expert (workers.py). When the expert closes its end, this process exits immediately.
"""

import os
import pickle
import sys
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from experts.host import load_context
from experts.host.devices import resident_bytes
from experts.host.handler import Handler
from experts.host.isolation import running
from experts.host.model_errors import translate_model_errors
from experts.host.threads import ThreadPool, to_sendable_error
from experts.host.workers import LOAD, Cancel, LoadedInfo, Progress, Reply, Request, Start
from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common import call_context, logging


class RemoteBatch:
    """The calls of a batch, which are active in the parent process: a handler.Call."""

    def __init__(self, send_progress: Callable[[float, str], None]) -> None:
        self.cancelled = False
        self._send_progress = send_progress

    def progress(self, fraction: float, message: str = "") -> None:
        self._send_progress(fraction, message)


class Worker:
    """Executes the requests received on a connection: batches on one thread, other steps on CPU threads."""

    def __init__(self, connection: Connection, start: Start) -> None:
        self._connection, self._start = connection, start
        self._send_lock = threading.Lock()
        self._device, self._cpu = ThreadPool("device"), ThreadPool("cpu", start.threads, elastic=True)
        self._handler: Handler | None = None
        self._items: dict[int, Any] = {}
        self._batches: dict[int, RemoteBatch] = {}

    def serve(self) -> None:
        """Loads the model and answers requests until the connection closes."""
        self._post(self._device, LOAD, self._load)
        with suppress(EOFError, OSError):
            while True:
                message = self._connection.recv()
                if isinstance(message, Cancel):
                    if batch := self._batches.get(message.number):
                        batch.cancelled = True
                else:
                    self._handle(message)

    def _handle(self, request: Request) -> None:
        for item in request.discarded:
            self._items.pop(item, None)
        if request.step == "run":
            self._batches[request.number] = RemoteBatch(partial(self._send_progress, request.number))
            self._post(self._device, request.number, partial(self._run, request))
        else:
            step = self._prepare if request.step == "prepare" else self._finish
            self._post(self._cpu, request.number, partial(step, request))

    def _post(self, threads: ThreadPool, number: int, function: Callable[[], Any]) -> None:
        def job() -> None:
            try:
                with translate_model_errors(self._start.context.model_id):
                    reply = Reply(number, _call_with_sendable_errors(function))
            except Exception as error:  # noqa: BLE001  # reported to the parent
                reply = Reply(number, error=error)
            self._batches.pop(number, None)
            self._send(reply)

        threads.post(job)

    def _load(self) -> LoadedInfo:
        start = self._start
        context = replace(start.context, progress=partial(self._send_progress, LOAD))
        with load_context.use(context):
            self._handler = handler = pickle.loads(start.loader)(context.model_id, context.device)  # noqa: S301  # our own parent's
        return LoadedInfo(handler.batching, handler.revision, resident_bytes(), handler.concurrent)

    def _prepare(self, request: Request) -> tuple[float, Hashable]:
        """Prepares an item and returns its cost and batch key."""
        inputs, parameters = request.arguments
        with call_context.use_caller(Caller.FromString(request.caller)):
            item = self._loaded.prepare(inputs, parameters)
            self._items[request.items[0]] = item
            return self._loaded.cost(item), self._loaded.batch_key(item, parameters)

    def _run(self, request: Request) -> int:
        items = [self._items[item] for item in request.items]  # not removed: after an error they are run one by one
        with call_context.use_caller(Caller.FromString(request.caller)):
            raws = self._loaded.run(items, self._batches[request.number])
        self._items |= dict(zip(request.items, raws, strict=False))
        return len(raws)

    def _finish(self, request: Request) -> Any:
        with call_context.use_caller(Caller.FromString(request.caller)):
            return dict(self._loaded.finish(self._items.pop(request.items[0])))

    @property
    def _loaded(self) -> Handler:
        assert self._handler  # noqa: S101  # the parent sends no request before the load has succeeded
        return self._handler

    def _send_progress(self, number: int, fraction: float, message: str) -> None:
        self._send(Progress(number, fraction, message))

    def _send(self, message: Any) -> None:
        with self._send_lock, suppress(OSError):  # the parent has exited, and this process will, too
            try:
                self._connection.send(message)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                self._connection.send(Reply(message.number, error=to_sendable_error(error)))


def _call_with_sendable_errors(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except BaseException as error:  # noqa: BLE001  # reported to the parent
        raise to_sendable_error(error) from None


def main(descriptor: int) -> None:
    """Serves the parent at the other end of the descriptor."""
    connection = Connection(descriptor)
    start: Start = connection.recv()
    sys.path[:] = start.path
    level, style = start.log
    logging.setup(f"worker {start.context.model_id}", level=level, style=style)
    with running(start.isolation, ahead=False):
        Worker(connection, start).serve()
    os._exit(0)  # exits even if a thread is stuck in native code


if __name__ == "__main__":
    main(int(sys.argv[1]))
