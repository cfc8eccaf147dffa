"""The worker processes of this process: one fork server, one pool for decoding, and pools of engines."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from experts.host.handler import Call
from experts.host.isolation import messages
from experts.host.isolation.limits import Budget, Limits
from experts.host.isolation.pool import Pool
from experts.host.isolation.processes import ForkServer
from experts.host.isolation.worker import is_worker
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common import call_context

P = ParamSpec("P")
T = TypeVar("T")

SLOW_SECONDS = 1.0
"""From when on a call is slow: nearly all ordinary files are decoded in a tenth of that."""

MODULES = (
    "experts.host.isolation.worker",
    "experts.host.media",
    "experts.host.audio",
    "numpy",
    "PIL.Image",
    "PIL.ImageOps",
    "pypdfium2",
    "pi_heif",
    "soundfile",
    "av",
)
"""What the fork server imports; those that are not installed are left out."""


@dataclass(frozen=True)
class Configuration:
    """How many worker processes there are, and what one call may use."""

    workers: int = 3
    slow_workers: int = 1
    engine_workers: int = 2
    limits: Limits = field(default_factory=Limits)
    modules: Sequence[str] = ()
    """What the fork server imports besides the decoders."""


class _Runtime:
    """The processes that were started, and how many users they have."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.configuration = Configuration()
        self.users = 0
        self.server: ForkServer | None = None
        self.decoders: Pool | None = None
        self.engines: list[Pool] = []

    def fork_server(self) -> ForkServer:
        with self.lock:
            if self.server is None or not self.server.is_alive:
                self.server = ForkServer((*MODULES, *self.configuration.modules))
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
    """Worker processes are there for as long as the block lasts.

    Args:
        configuration: how they are started.
        ahead: start them now, in the background, instead of for the first call.
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
def in_call(call: Call) -> Iterator[None]:
    """Isolated calls within the block belong to a call of the expert: they end when it is cancelled."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def isolated(function: Callable[..., T], *arguments: Any, file: str, port: str = "", budget: Budget | None = None) -> T:
    """Runs a function in a worker process, within the limits; in a worker process in place.

    Args:
        function: importable by its name.
        arguments: what it is called with; large bytes, pictures and arrays travel in shared memory.
        file: the name of the file that it reads, for errors.
        port: the input port of the file, for errors.
        budget: shared with other calls on the same file.

    Raises:
        InvalidRequest: DECODE_LIMIT, it exceeded a limit; DECODE_CRASH, the worker died of it.
        Exception: as raised by the function.
    """
    if is_worker():
        return function(*arguments)
    return run_in(_runtime.decoder_pool(), function, *arguments, file=file, port=port, budget=budget)


def run_in(
    pool: Pool,
    function: Callable[..., T],
    *arguments: Any,
    file: str,
    port: str = "",
    budget: Budget | None = None,
) -> T:
    """As `isolated`, in a pool of one's own."""
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
    """The limits of one isolated call."""
    return _runtime.configuration.limits


def engine_pool(prepare: Callable[..., Any], *arguments: Any, slow_seconds: float) -> Pool:
    """A pool whose workers load an engine once; given what loads it, in each of them."""
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


def _forget_in_child() -> None:
    """A forked process has none of the threads that its parent's pools need."""
    global _runtime  # noqa: PLW0603
    _runtime = _Runtime()


os.register_at_fork(after_in_child=_forget_in_child)
