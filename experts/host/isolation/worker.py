"""A worker process: receives calls, runs each within its limits, and sends results back."""

import errno
import math
import resource
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from experts.host.devices import resident_bytes, trim
from experts.host.isolation import messages
from experts.host.isolation.channel import Channel, MessageTooLong
from experts.host.model_errors import is_out_of_memory
from experts.host.threads import to_sendable_error
from services.common.errors import ServiceError

GROWTH_BYTES = 192 * 1024 * 1024
"""Growth of resident memory since before its first call after which a worker ends and is replaced."""

_STATM, _STATUS, _OOM_SCORE = (Path("/proc/self") / name for name in ("statm", "status", "oom_score_adj"))
_UNLIMITED = resource.RLIM_INFINITY
_NEAR_LIMIT_SHARE = 0.95

_channel: Channel | None = None


def is_worker() -> bool:
    """Whether this process is a worker, in which isolated calls run in place."""
    return _channel is not None


def report_progress(fraction: float, message: str = "") -> None:
    """Reports the progress of the call in this worker; does nothing in other processes."""
    if _channel:
        _channel.send(messages.Progress(fraction, message))


def serve(connection: socket.socket, memory: int) -> None:
    """Answers calls until the expert closes the connection, or the worker has to be replaced."""
    global _channel  # noqa: PLW0603  # set once, when the process becomes a worker
    _channel = channel = Channel(connection, memory)
    with suppress(OSError):  # another system, or not allowed
        _OOM_SCORE.write_text("500", encoding="ascii")  # if memory is short, the system kills workers first
    with suppress(EOFError, OSError):
        prepare: messages.Prepare = channel.receive()
        _answer(channel, prepare.function or _do_nothing, prepare.arguments, _Memory(None))
        start_bytes = resident_bytes()
        while True:
            peak_bytes = _peak_bytes()  # measured here so that no call waits for it
            call: messages.Run = channel.receive()
            with _Memory(call.memory_bytes, peak_bytes) as memory_limit:
                _limit_processor(time.process_time() + call.cpu_seconds)
                replaceable = _answer(channel, call.function, call.arguments, memory_limit)
                _limit_processor(None)
            del call
            channel.release()
            if replaceable or _has_grown(start_bytes):
                return


class _Memory:
    """A limit on this process's address space.

    Args:
        extra_bytes: in addition to what is mapped; None: no limit, as on systems without /proc.
        peak_bytes: peak address space of earlier calls.
    """

    def __init__(self, extra_bytes: int | None, peak_bytes: int = 0) -> None:
        self._limit, self._peak = _UNLIMITED, peak_bytes
        if extra_bytes is not None and peak_bytes:
            mapped = int(_STATM.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
            self._limit = mapped + extra_bytes

    def __enter__(self) -> Self:
        self._set(self._limit)
        return self

    def __exit__(self, *_: object) -> None:
        self._set(_UNLIMITED)

    def is_cause_of(self, error: BaseException) -> bool:
        """Whether the limit caused an error; decoders may report it as a corrupted file."""
        if isinstance(error, MessageTooLong) or is_out_of_memory(error):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        return self._limit != _UNLIMITED and _peak_bytes() > max(self._peak, int(_NEAR_LIMIT_SHARE * self._limit))

    def _set(self, limit: int) -> None:
        if self._limit != _UNLIMITED:
            resource.setrlimit(resource.RLIMIT_AS, (limit, _UNLIMITED))


def _answer(channel: Channel, function: Callable[..., Any], arguments: tuple[Any, ...], memory: _Memory) -> bool:
    """Runs a function and sends its result or error; returns whether the worker must be replaced."""
    started_at = time.process_time()
    try:
        channel.send(messages.Done(function(*arguments), time.process_time() - started_at))
    except BaseException as error:  # noqa: BLE001  # reported to the caller
        if memory.is_cause_of(error):
            reply: Any = messages.OutOfMemory(time.process_time() - started_at)
        else:
            where = () if isinstance(error, ServiceError) else tuple(traceback.format_tb(error.__traceback__))
            reply = messages.Failed(
                to_sendable_error(error).with_traceback(None), time.process_time() - started_at, where
            )
    else:
        return False
    _send_error(channel, reply)
    return isinstance(reply, messages.OutOfMemory)


def _send_error(channel: Channel, reply: Any) -> None:
    try:
        channel.send(reply)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  # an exception of a library that cannot be pickled
        plain = RuntimeError(f"{type(reply.error).__name__}, which cannot be sent: {type(error).__name__}")
        channel.send(messages.Failed(plain, reply.cpu_seconds, reply.where))


def _limit_processor(seconds: float | None) -> None:
    """Limits the processor time of this process; the system ends it at the limit."""
    limit = _UNLIMITED if seconds is None else math.ceil(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, _UNLIMITED))


def _has_grown(start_bytes: int) -> bool:
    if resident_bytes() - start_bytes < GROWTH_BYTES:
        return False
    trim()
    return resident_bytes() - start_bytes > GROWTH_BYTES


def _peak_bytes() -> int:
    """Returns the peak address space of this process; 0 on systems without /proc."""
    if not _STATUS.exists():
        return 0
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmPeak:")), 0)


def _do_nothing() -> None:
    """Prepare function of a worker that needs no preparation."""
