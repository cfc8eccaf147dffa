"""PostgreSQL for tests: started once per session, with a new database per request."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from services.local.ports import free_address
from tests.support.required_programs import find_program, require

PASSWORD = "of-the-tests"  # of a server that exists only during the tests

START_SECONDS = 60.0
"""Seconds to wait for the server's start; after a crash it replays its log first."""

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "unix_socket_directories": "",
}


class PostgresServer:
    """A PostgreSQL server that can be stopped and restarted."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._programs, self._folder, self._user_command = _programs(), folder, _user_command(folder)
        self._port = _free_port()
        settings = {**_SETTINGS, "port": str(self._port), "fsync": "on" if durable else "off"}
        self._settings = [f"-c{name}={value}" for name, value in settings.items()]
        self.url = f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self._port}/postgres"
        """URL of the first database."""
        _initialize(self._programs, folder, self._user_command)

    def start(self) -> None:
        """Starts the server and waits until it accepts connections."""
        data = self._folder / "data"
        command = [*self._user_command, str(self._programs / "postgres"), "-D", str(data), *self._settings]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        _wait_until_ready(self._programs, self._port, self._process, self._folder / "log")

    def stop(self) -> None:
        """Stops the server at once, as in a crash."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)


@contextmanager
def running_server(*, durable: bool = True) -> Iterator[PostgresServer]:
    """Runs a separate server; works for any user.

    Args:
        durable: Whether commits survive a power failure; they always survive the end of a process.
    """
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        server = PostgresServer(folder, durable=durable)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_postgres(*, durable: bool = True) -> Iterator[str]:
    """Runs a separate server and yields the URL of its first database; arguments as for `serving`."""
    with running_server(durable=durable) as server:
        yield server.url


@contextmanager
def running_pgbouncer(url: str) -> Iterator[str]:
    """Runs PgBouncer in session mode before a server, and yields the URL of the database through it."""
    parts = urlsplit(url)
    folder, port = Path(tempfile.mkdtemp(prefix="pgbouncer-")), _free_port()
    server = f"host={parts.hostname} port={parts.port} user={parts.username} password={parts.password}"
    settings = {"listen_addr": "127.0.0.1", "listen_port": port, "pool_mode": "session", "auth_type": "any"}
    lines = ["[databases]", f"* = {server}", "[pgbouncer]", *(f"{name} = {value}" for name, value in settings.items())]
    file = folder / "pgbouncer.ini"
    file.write_text("\n".join([*lines, "unix_socket_dir =", ""]))
    try:
        as_user = _user_command(folder)
        file.chmod(0o644)
        process = subprocess.Popen([*as_user, str(find_program("pgbouncer")), "--quiet", str(file)], cwd="/")
        try:
            _wait_until_ready(_programs(), port, process, file)
            yield urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))
        finally:
            process.terminate()
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def new_database(url: str) -> AsyncIterator[str]:
    """Creates a database, yields its URL, and drops it at exit."""
    name = f"test_{uuid4().hex}"
    await _execute(url, f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        await _execute(url, f"DROP DATABASE {name} WITH (FORCE)")


async def emptied_database(url: str) -> str:
    """Removes all schemas and connections of a database and returns its URL; faster than a new database."""
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid != pg_backend_pid()"
    await _execute(url, f"SELECT pg_terminate_backend(pid) {others}")
    schemas = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema|public)'"
    drop = f"FOR name IN {schemas} LOOP EXECUTE format('DROP SCHEMA %I CASCADE', name); END LOOP"
    await _execute(url, f"DO $$ DECLARE name text; BEGIN {drop}; END $$")
    return url


async def _execute(url: str, command: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(command)
    finally:
        await connection.close()


def _programs() -> Path:
    """Folder of the server's programs."""
    server = find_program("postgres")
    if server is None:
        raise RuntimeError("PostgreSQL is not installed: run `make test-deps`")
    return server.parent


def _user_command(folder: Path) -> list[str]:
    """Command prefix that runs the server without root rights and stops it with this process."""
    command = ["setpriv", "--pdeathsig=QUIT"]
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        command += ["--reuid=postgres", "--regid=postgres", "--clear-groups"]
    return command if shutil.which("setpriv") else []


def _initialize(programs: Path, folder: Path, as_user: list[str]) -> None:
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    options = ["-U", "postgres", "-A", "md5", f"--pwfile={secret}", "-E", "UTF8", "--locale=C", "--no-sync"]
    command = [*as_user, str(programs / "initdb"), "-D", str(folder / "data"), *options]
    subprocess.run(command, check=True, capture_output=True, cwd="/")


def _free_port() -> int:
    """A free port that the system assigns to no other server, so that it stays free between starts, too."""
    return int(free_address("127.0.0.1:0", option="port").rpartition(":")[2])


def _wait_until_ready(programs: Path, port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    command = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "10"]
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if subprocess.run(command, check=False).returncode == 0:
            return
        try:
            server.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RuntimeError(f"PostgreSQL does not start: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of the session's server."""
    require("postgres")
    with running_postgres(durable=False) as url:
        yield url
