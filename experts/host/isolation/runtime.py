"""Worker processes of this expert: one fork server, one pool for decoding, and one pool per engine."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Media, Outputs, Parameters
from experts.host.isolation import messages
from experts.host.isolation.limits import Budget, Limits
from experts.host.isolation.pool import Pool
from experts.host.isolation.processes import ForkServerProcess
from experts.host.isolation.worker import is_worker
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common import call_context

P = ParamSpec("P")
T = TypeVar("T")

SLOW_SECONDS = 1.0
"""Processor time from which a call counts as slow; nearly all ordinary files are decoded in a tenth of it."""

MODULES = (
    "experts.host.isolation.worker",
    "experts.host.media",
    "numpy",
    "PIL.Image",
    "PIL.ImageOps",
    "pypdfium2",
    "pi_heif",
    "soundfile",
    "av",
)
"""Modules that the fork server imports, if they are installed."""


@dataclass(frozen=True)
class Configuration:
    """Number of worker processes and limits of one call."""

    workers: int = 3
    slow_workers: int = 1
    engine_workers: int = 2
    limits: Limits = field(default_factory=Limits)
    modules: Sequence[str] = ()
    """Modules that the fork server imports in addition to the decoders."""


class _Runtime:
    """The started processes and the number of their users."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.configuration = Configuration()
        self.users = 0
        self.server: ForkServerProcess | None = None
        self.decoders: Pool | None = None
        self.engines: list[Pool] = []

    def fork_server(self) -> ForkServerProcess:
        with self.lock:
            if self.server is None or not self.server.is_alive:
                self.server = ForkServerProcess((*MODULES, *self.configuration.modules))
            return self.server

    def decoder_pool(self) -> Pool:
        with self.lock:
            if self.decoders is None:
                configuration = self.configuration
                self.decoders = Pool(
                    self.fork_server,
                    configuration.limits,
                    size=configuration.workers,
                    slow=configuration.slow_workers,
                    slow_seconds=SLOW_SECONDS,
                )
            return self.decoders

    def close(self) -> None:
        with self.lock:
            pools = [pool for pool in (self.decoders, *self.engines) if pool]
            server, self.server, self.decoders = self.server, None, None
            self.engines.clear()
            self.configuration = Configuration()
        for pool in pools:
            pool.close()
        if server:
            server.close()


_runtime = _Runtime()
_call: ContextVar[Call | None] = ContextVar("isolated_call", default=None)


def configure(configuration: Configuration) -> None:
    """Sets how worker processes are started from now on."""
    with _runtime.lock:
        if configuration != _runtime.configuration:
            _runtime.configuration = configuration
            if _runtime.decoders:
                _runtime.decoders.close()
                _runtime.decoders = None


@contextmanager
def running(configuration: Configuration, *, ahead: bool) -> Iterator[None]:
    """Provides worker processes within the block.

    Args:
        configuration: how they are started.
        ahead: whether to start them now, in the background, instead of at the first call.
    """
    configure(configuration)
    with _runtime.lock:
        _runtime.users += 1
        if ahead:
            _runtime.decoder_pool().start()
    try:
        yield
    finally:
        with _runtime.lock:
            _runtime.users -= 1
            is_last = not _runtime.users
        if is_last:
            _runtime.close()


@contextmanager
def use_call(call: Call) -> Iterator[None]:
    """Ends isolated calls made within the block when the given call of the expert is cancelled."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def run_isolated(
    function: Callable[..., T], *arguments: Any, file: str, port: str = "", budget: Budget | None = None
) -> T:
    """Runs a function in a worker process within the limits; inside a worker process, runs it in place.

    Args:
        function: importable by its name.
        arguments: its positional arguments; large bytes, images and arrays are passed in shared memory.
        file: name of the file that it reads, for errors.
        port: input port of the file, for errors.
        budget: shared with other calls on the same file.

    Raises:
        InvalidRequest: DECODE_LIMIT, it exceeded a limit; DECODE_CRASH, it crashed the worker.
        Exception: as raised by the function.
    """
    if is_worker():
        return function(*arguments)
    return run_in_pool(_runtime.decoder_pool(), function, *arguments, file=file, port=port, budget=budget)


def run_in_pool(
    pool: Pool,
    function: Callable[..., T],
    *arguments: Any,
    file: str,
    port: str = "",
    budget: Budget | None = None,
) -> T:
    """As `run_isolated`, in the given pool."""
    current = call_context.current()
    result: T = pool.run(
        function,
        arguments,
        file=file,
        port=port,
        budget=budget,
        tenant=current.tenant,
        background=current.priority == PRIORITY_BATCH,
        call=_call.get(),
    )
    return result


def current_limits() -> Limits:
    """Returns the limits of one isolated call."""
    return _runtime.configuration.limits


def engine_pool(prepare: Callable[..., Any], *arguments: Any, slow_seconds: float) -> Pool:
    """Returns a pool whose workers each load an engine once.

    Args:
        prepare: loads the engine; called in each worker.
        arguments: its positional arguments.
        slow_seconds: processor time from which a call counts as slow.
    """
    with _runtime.lock:
        configuration = _runtime.configuration
        pool = Pool(
            _runtime.fork_server,
            configuration.limits,
            size=configuration.engine_workers,
            slow=max(1, configuration.engine_workers - 1),
            slow_seconds=slow_seconds,
            prepare=messages.Prepare(prepare, arguments),
        )
        _runtime.engines.append(pool)
    return pool


@dataclass(frozen=True)
class IsolatedFunctionHandler(Handler):
    """Handler of a function of inputs and parameters; its calls run concurrently in worker processes."""

    function: Callable[[Inputs, Parameters], Outputs]
    port: str
    """The input port of its file."""
    batching = UNBATCHED
    concurrent = True

    def prepare(self, inputs: Inputs, parameters: Parameters) -> tuple[dict[str, Any], dict[str, Any]]:
        return dict(inputs), dict(parameters)

    def run(self, items: Sequence[tuple[Inputs, Parameters]], call: Call) -> list[Outputs]:  # noqa: ARG002  # use_call has it
        return [
            run_isolated(self.function, inputs, parameters, file=_file(inputs, self.port), port=self.port)
            for inputs, parameters in items
        ]

    def finish(self, raw: Outputs) -> Outputs:
        return raw


def isolated_single(function: Callable[[Inputs, Parameters], Outputs], *, port: str) -> Handler:
    """Adapts a function to a Handler that runs it in worker processes.

    Args:
        function: importable by its name, or a partial of such a function.
        port: input port of the file that it reads.
    """
    return IsolatedFunctionHandler(function, port)


def _file(inputs: Inputs, port: str) -> str:
    media = inputs.get(port)
    return media.name if isinstance(media, Media) else port


def _reset_in_child() -> None:
    """Resets the runtime in a forked process, which lacks the threads of its parent's pools."""
    global _runtime  # noqa: PLW0603
    _runtime = _Runtime()


os.register_at_fork(after_in_child=_reset_in_child)
