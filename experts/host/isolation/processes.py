"""The fork server and its workers, as controlled by the expert."""

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from experts.host import metering
from experts.host.isolation import fork_server, messages
from experts.host.isolation.channel import Channel, create_memory
from services.common.errors import ModelFailed, ServiceError

START_SECONDS = 60.0
"""Timeout of the start of the fork server, which imports the decoders, and of waits for the end of a process."""

_ROOT = Path(__file__).parents[3]
_PROGRAM = f"import sys; from {fork_server.__name__} import main; main(int(sys.argv[1]))"
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # each thread's arena would count as 64 MiB of address space
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # reuses memory for the next call instead of returning and zeroing it
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}


@dataclass(frozen=True)
class Exit:
    """How a worker ended."""

    status: int
    """As in subprocess: a negative number is a signal."""
    cpu_seconds: float
    peak_bytes: int
    """Peak resident memory."""


NO_FORK_SERVER = Exit(-9, 0.0, 0)
"""Exit of a worker that ended together with its fork server."""


class ForkServerProcess:
    """The process that forks workers; to restart it, create another instance.

    Args:
        modules: imported before the first fork.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                (sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": path},
                start_new_session=True,  # the expert handles a terminal's Ctrl-C for it
            )
        self._control = ours
        setup = pickle.dumps((sys.path, tuple(modules)))
        ours.sendall(fork_server.SETUP.pack(len(setup)) + setup)
        self._forking, self._sending = threading.Lock(), threading.Lock()
        self._forked: SimpleQueue[int] = SimpleQueue()
        self._exits: dict[int, Callable[[Exit], None]] = {}
        self._lock = threading.Lock()
        self._early: dict[int, Exit] = {}
        self.is_alive = True
        threading.Thread(target=self._listen, name="fork-server", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, connection: int, memory: int) -> int:
        """Forks a worker, which receives both descriptors; returns its process id.

        Raises:
            OSError: the fork server has ended.
        """
        with self._forking:
            with self._sending:
                command = fork_server.COMMAND.pack(fork_server.FORK, 0)
                socket.send_fds(self._control, [command], [connection, memory])
            try:
                process_id = self._forked.get(timeout=START_SECONDS)
            except Empty:  # a late answer would be mistaken for the answer to the next command
                self._process.kill()
                raise TimeoutError(f"the fork server did not answer within {START_SECONDS:g} s") from None
        if process_id < 0:
            raise BrokenPipeError("the fork server has ended")
        return process_id

    def on_exit(self, process_id: int, callback: Callable[[Exit], None]) -> None:
        """Calls back when a worker has ended, immediately if it already has."""
        with self._lock:
            exited = self._early.pop(process_id, None if self.is_alive else NO_FORK_SERVER)
            if exited is None:
                self._exits[process_id] = callback
        if exited:
            callback(exited)

    def kill(self, process_id: int) -> None:
        with self._sending, suppress(OSError):  # the fork server has ended, and all workers with it
            self._control.sendall(fork_server.COMMAND.pack(fork_server.KILL, process_id))

    def close(self) -> None:
        """Ends all workers and waits until they have ended."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        with suppress(OSError):
            while event := self._control.recv(fork_server.EVENT.size, socket.MSG_WAITALL):
                kind, number, value, seconds, peak = fork_server.EVENT.unpack(event)
                if kind == fork_server.FORKED:
                    self._forked.put(value)
                else:
                    self._dispatch_exit(number, Exit(value, seconds, peak))
        with self._lock:
            self.is_alive = False
            left, self._exits = self._exits, {}
        self._forked.put(-1)
        for callback in left.values():
            callback(NO_FORK_SERVER)
        self._control.close()
        self._process.wait()

    def _dispatch_exit(self, process_id: int, exited: Exit) -> None:
        with self._lock:
            callback = self._exits.pop(process_id, None)
            if callback is None:
                self._early[process_id] = exited
        if callback:
            callback(exited)


class WorkerProcess:
    """One worker process, from its start to its end.

    Args:
        server: the fork server that forks it.
        prepare: function to run before its first call.
        on_exit: called when it has ended.

    Raises:
        ServiceError: as raised by the prepare function.
        ModelFailed: it ended during the preparation.
        OSError: the fork server has ended.
    """

    def __init__(
        self, server: ForkServerProcess, prepare: messages.Prepare, on_exit: Callable[["WorkerProcess"], None]
    ) -> None:
        ours, theirs = socket.socketpair()
        memory = create_memory()
        self._server, self._on_exit = server, on_exit
        self.ended = threading.Event()
        self.exit: Exit | None = None
        self.channel = Channel(ours, memory)
        try:
            with theirs:
                self.pid = server.fork(theirs.fileno(), memory)
        except BaseException:
            self.channel.close()
            raise
        metering.watch(self.pid)
        server.on_exit(self.pid, self._record_exit)
        self._prepare(prepare)

    def kill(self) -> None:
        """Kills the process."""
        self._server.kill(self.pid)

    def close(self) -> None:
        """Kills the process and closes the channel."""
        self.kill()
        self.channel.close()

    def wait(self) -> Exit:
        """Waits for the process and returns how it ended."""
        self.ended.wait(START_SECONDS)
        return self.exit or NO_FORK_SERVER

    def _prepare(self, prepare: messages.Prepare) -> None:
        error: Exception | None
        try:
            self.channel.send(prepare)
            reply: Any = self.channel.receive()
            error = reply.error if isinstance(reply, messages.Failed) else None
            ready = isinstance(reply, messages.Done)
        except (EOFError, OSError):
            error, ready = None, False
        if ready:
            return
        self.close()
        if isinstance(error, ServiceError | ModuleNotFoundError):
            raise error
        cause = type(error).__name__ if error else f"it ended with status {self.wait().status}"
        raise ModelFailed(f"cannot start a worker process: {cause}", remedy="see the log of the expert")

    def _record_exit(self, exit_: Exit) -> None:
        metering.forget(self.pid, exit_.cpu_seconds)
        self.exit = exit_
        self.ended.set()
        self._on_exit(self)
