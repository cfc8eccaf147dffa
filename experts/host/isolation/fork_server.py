"""Single-threaded process that forks worker processes.

An expert has threads and must not fork. The fork server imports the modules that workers need, so that a worker starts
in milliseconds and shares their memory. It kills all workers when the connection to the expert closes.
"""

import array
import ctypes
import gc
import importlib
import os
import pickle
import selectors
import signal
import socket
import struct
import sys
from contextlib import suppress

COMMAND = struct.Struct("!cq")
"""FORK with a request number, or KILL with a process id."""
EVENT = struct.Struct("!cqqdq")
"""FORKED with the request number and a process id, or EXITED with a process id, its exit status (as in subprocess),
its processor time in seconds and its peak resident memory in bytes."""
FORK, KILL, FORKED, EXITED = b"F", b"K", b"f", b"x"
SETUP = struct.Struct("!Q")
"""Length of the pickled setup: the import path and the names of modules."""

_PR_SET_PDEATHSIG = 1


class ForkServer:
    """Forks and kills workers on command, and reports their exits."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: set[int] = set()

    def serve(self) -> None:
        """Executes commands until the expert closes the connection."""
        woken, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is woken:
                        woken.recv(4096)
                        self._report_exits()
                    elif not self._execute_command():
                        return

    def end_all(self) -> None:
        """Kills all workers and waits until they have ended."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for worker in self._workers:
            os.kill(worker, signal.SIGKILL)
        for worker in self._workers:
            with suppress(ChildProcessError):
                os.waitpid(worker, 0)

    def _execute_command(self) -> bool:
        message, descriptors = _receive_command(self._control)
        if not message:
            return False
        command, number = COMMAND.unpack(message)
        if command == FORK:
            self._fork(number, *descriptors)
        elif number in self._workers:  # the id of an exited worker may belong to another process
            os.kill(number, signal.SIGKILL)
        return True

    def _fork(self, number: int, connection: int, memory: int) -> None:
        process_id = os.fork()
        if process_id == 0:
            self._become_worker(connection, memory)
        os.close(connection)
        os.close(memory)
        self._workers.add(process_id)
        self._control.sendall(EVENT.pack(FORKED, number, process_id, 0.0, 0))

    def _become_worker(self, connection: int, memory: int) -> None:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            _end_with_parent()
            from experts.host.isolation import worker

            worker.serve(socket.socket(fileno=connection), memory)
        finally:
            os._exit(0)  # skips the interpreter's teardown, which may crash with native threads

    def _report_exits(self) -> None:
        with suppress(ChildProcessError):
            while True:
                process_id, status, usage = os.wait4(-1, os.WNOHANG)
                if not process_id:
                    return
                self._workers.discard(process_id)
                code, seconds = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
                peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
                self._control.sendall(EVENT.pack(EXITED, process_id, code, seconds, peak))


def _receive_command(control: socket.socket) -> tuple[bytes, list[int]]:
    """Receives a command with its descriptors; empty at the end of the connection."""
    descriptors = array.array("i")
    size = socket.CMSG_SPACE(2 * descriptors.itemsize)
    message, ancillary, _, _ = control.recvmsg(COMMAND.size, size)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content)
    while message and len(message) < COMMAND.size and (more := control.recv(COMMAND.size - len(message))):
        message += more
    return message, list(descriptors)


def _end_with_parent() -> None:
    """Requests that the system kill this process when the fork server ends for any reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(descriptor: int) -> None:
    """Serves the expert at the other end of a descriptor."""
    control = socket.socket(fileno=descriptor)
    (length,) = SETUP.unpack(control.recv(SETUP.size, socket.MSG_WAITALL))
    path, modules = pickle.loads(control.recv(length, socket.MSG_WAITALL))  # noqa: S301  # the expert's own
    sys.path[:] = path
    for module in modules:
        with suppress(ImportError):  # decoders are optional
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # garbage collection in a worker would write to shared pages and so copy them
    server = ForkServer(control)
    try:
        server.serve()
    except OSError:
        pass  # the expert has ended
    finally:
        server.end_all()
