"""The supervisor with real child processes, which report to the test over a socket that closes when they end."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.common.errors import FailedPrecondition, InvalidRequest, ServiceError, Unavailable
from services.local.ports import FREE_PORTS, Ports, free_address
from services.local.supervisor import Child, supervise

REPORTING = """
import os, signal, socket, sys
name = os.environ["NAME"]
report = socket.create_connection(("127.0.0.1", int(os.environ["TELL"])))
report.sendall(f"up {name} {os.getpid()}\\n".encode())
"""

PROGRAMS = {
    "steady": """
import signal
def leave(*_):
    report.sendall(f"down {name} {os.getpid()}\\n".encode())
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
"""
    + REPORTING
    + """
while True:
    signal.pause()
""",
    "stubborn": "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    + REPORTING
    + "while True:\n    signal.pause()\n",
    "broken": REPORTING + "sys.exit(1)\n",
    "parent": """
import os, subprocess, sys
subprocess.run([sys.executable, "-m", "steady"], env={**os.environ, "NAME": "grandchild"})
""",
    "serving": REPORTING
    + """
from concurrent.futures import ThreadPoolExecutor
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
server = grpc.server(ThreadPoolExecutor(4))
status = health.HealthServicer()
status.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
health_pb2_grpc.add_HealthServicer_to_server(status, server)
server.add_insecure_port(os.environ["LISTEN"])
server.start()
report.sendall(f"listening {name} {os.getpid()}\\n".encode())
report.recv(1)
status.set("", health_pb2.HealthCheckResponse.SERVING)
signal.pause()
""",
    "supervisor": """
import asyncio, os, sys
from services.local.supervisor import Child, supervise
async def on_ready(children):
    pass
async def main():
    children = [Child(name, "steady", settings={"NAME": name}) for name in ("one", "two")]
    await supervise([children], on_ready, asyncio.Event(), stop_seconds=5)
asyncio.run(main())
""",
}


class ChildMessages:
    """Messages of children: "up NAME", "down NAME", and "gone NAME" when their connection closes."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[str] = asyncio.Queue()
        self.pids: dict[str, int] = {}
        self._writers: list[asyncio.StreamWriter] = []

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        name = "?"
        while line := await self._line(reader):
            what, name, pid = line.split()
            self.pids[name] = int(pid)
            await self.messages.put(f"{what} {name}")
        await self.messages.put(f"gone {name}")

    async def next(self, count: int = 1) -> list[str]:
        async with asyncio.timeout(20):
            return [await self.messages.get() for _ in range(count)]

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def release(self) -> None:
        for writer in self._writers:
            writer.write(b"!")

    @staticmethod
    async def _line(reader: asyncio.StreamReader) -> str:
        try:
            return (await reader.readline()).decode()
        except ConnectionError:
            return ""


@pytest.fixture
async def child_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChildMessages]:
    for name, program in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(program)
    child_messages = ChildMessages()
    server = await asyncio.start_server(child_messages.listen, "127.0.0.1", 0)
    monkeypatch.setenv("TELL", str(server.sockets[0].getsockname()[1]))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with server:
        yield child_messages
    await child_messages.close()


def child(name: str, module: str, addresses: Sequence[str] = (), **settings: str) -> Child:
    return Child(name, module, addresses, {"NAME": name, **settings})


class Supervision:
    def __init__(self) -> None:
        self.stop, self.ready = asyncio.Event(), asyncio.Event()
        self.pids: Mapping[str, int] = {}

    async def on_ready(self, children: Mapping[str, int]) -> None:
        self.pids = children
        self.ready.set()


@asynccontextmanager
async def supervising(
    *stages: Sequence[Child], stop_seconds: float = 10, ready_seconds: float = 60
) -> AsyncIterator[Supervision]:
    supervision = Supervision()
    async with asyncio.timeout(60):
        task = asyncio.create_task(
            supervise(
                stages,
                supervision.on_ready,
                supervision.stop,
                stop_seconds=stop_seconds,
                ready_seconds=ready_seconds,
            )
        )
        try:
            yield supervision
            supervision.stop.set()
            await task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_child_that_exits_is_restarted_and_logged(child_messages: ChildMessages) -> None:
    with capture_logs() as logs:
        async with supervising([child("lite", "steady")]):
            assert await child_messages.next() == ["up lite"]
            first = child_messages.pids["lite"]
            os.kill(first, signal.SIGKILL)
            assert await child_messages.next(2) == ["gone lite", "up lite"]
            assert child_messages.pids["lite"] != first
    (line,) = [entry for entry in logs if entry["event"] == "child died, restarting"]
    assert line["child"] == "lite"
    assert line["signal"] == "SIGKILL"
    assert line["restarts"] == 1
    assert line["delay"] == 0.1


async def test_stages_stop_one_after_the_other(child_messages: ChildMessages) -> None:
    async with supervising([child("services", "steady")], [child("expert", "steady")]) as supervision:
        assert sorted(await child_messages.next(2)) == ["up expert", "up services"]
        supervision.stop.set()
        assert await child_messages.next(4) == ["down services", "gone services", "down expert", "gone expert"]


async def test_child_that_ignores_sigterm_is_killed(child_messages: ChildMessages) -> None:
    async with supervising([child("deaf", "stubborn")], stop_seconds=0.2) as supervision:
        assert await child_messages.next() == ["up deaf"]
        supervision.stop.set()
        assert await child_messages.next() == ["gone deaf"]


async def test_child_that_cannot_start_stops_all_and_is_named(child_messages: ChildMessages) -> None:
    supervision = Supervision()
    broken = child("selector", "broken", ["127.0.0.1:1"])
    async with asyncio.timeout(60):
        with pytest.raises(FailedPrecondition, match="selector cannot start: exit_status 1, 3 times"):
            await supervise(
                [[child("services", "steady")], [broken]], supervision.on_ready, supervision.stop, stop_seconds=5
            )
    messages = []
    while "gone services" not in messages:
        messages += await child_messages.next()
    assert not supervision.ready.is_set()


async def test_processes_started_by_a_child_end_with_it(child_messages: ChildMessages) -> None:
    async with supervising([child("lite", "parent")]) as supervision:
        assert await child_messages.next() == ["up grandchild"]
        await supervision.ready.wait()
        os.kill(supervision.pids["lite"], signal.SIGKILL)
        assert await child_messages.next(2) == ["gone grandchild", "up grandchild"]


async def test_ready_when_all_servers_are_serving(child_messages: ChildMessages) -> None:
    with Ports() as ports:
        address = ports.reserve()
        async with supervising([child("services", "serving", [address], LISTEN=address)]) as supervision:
            assert await child_messages.next(2) == ["up services", "listening services"]
            assert not supervision.ready.is_set()
            child_messages.release()
            await supervision.ready.wait()
            assert supervision.pids == child_messages.pids


async def test_ready_without_a_late_child_that_is_not_essential(child_messages: ChildMessages) -> None:
    slow = replace(child("lite", "steady", ["127.0.0.1:1"]), essential=False)
    with capture_logs() as logs:
        async with supervising([child("services", "steady")], [slow], ready_seconds=0.1) as supervision:
            await supervision.ready.wait()
            await child_messages.next(2)
    assert [entry["children"] for entry in logs if entry["event"] == "children not ready in time"] == [["lite"]]


async def test_children_end_when_their_supervisor_is_killed(child_messages: ChildMessages) -> None:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((root, os.environ["PYTHONPATH"]))}
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-m", "supervisor", env=environment)
    assert sorted(await child_messages.next(2)) == ["up one", "up two"]
    supervisor.kill()
    assert sorted(await child_messages.next(4)) == ["down one", "down two", "gone one", "gone two"]
    await supervisor.wait()


async def test_reserved_port_receives_no_connections() -> None:
    with Ports() as ports, socket.socket() as server:
        host, port = ports.reserve().split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((host, int(port)))
        server.listen(1)
        server.settimeout(5)
        for _ in range(100):
            with socket.create_connection((host, int(port)), timeout=5):
                server.accept()[0].close()


async def test_reserved_port_is_not_free() -> None:
    with Ports() as ports, pytest.raises(Unavailable, match="Address already in use"):
        free_address(ports.reserve(), option="--http")


async def test_port_zero_is_replaced_by_a_free_port_that_no_connection_takes() -> None:
    host, port = free_address("127.0.0.1:0", option="--http").split(":")
    assert host == "127.0.0.1"
    assert int(port) in FREE_PORTS


async def test_used_port_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        port = used.getsockname()[1]
        monkeypatch.setattr("services.local.ports.random.sample", lambda *_: [port, FREE_PORTS[0]])
        assert free_address("127.0.0.1:0", option="--http") == f"127.0.0.1:{FREE_PORTS[0]}"


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("8080", InvalidRequest),
        ("localhost", InvalidRequest),
        ("127.0.0.1:http", InvalidRequest),
        (":8080", InvalidRequest),
        ("127.0.0.1:70000", InvalidRequest),
        ("192.0.2.1:8080", Unavailable),
    ],
)
async def test_unusable_address_is_reported(address: str, error: type[ServiceError]) -> None:
    with pytest.raises(error) as caught:
        free_address(address, option="--http")
    assert address in caught.value.message
    assert "--http" in caught.value.remedy
