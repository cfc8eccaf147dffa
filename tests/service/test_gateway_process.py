"""The gateway as a separate process."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

LIGHT_MB = 150

pytestmark = pytest.mark.slow

RESIDENT = """
import asyncio, resource
from pathlib import Path
from gateway.__main__ import gateway
from gateway.settings import Settings

async def main():
    async with gateway(Settings()):
        pages = Path("/proc/self/statm")  # where there is none, the peak has to do: on Linux it counts the parent's
        if pages.exists():
            print(int(pages.read_text().split()[1]) * resource.getpagesize())
        else:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

asyncio.run(main())
"""


def environment(folder: Path, **settings: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    own = {
        "GATEWAY_LISTEN": "127.0.0.1:0",
        "GATEWAY_HTTP_LISTEN": "127.0.0.1:0",
        "GATEWAY_ORCHESTRATOR": "127.0.0.1:1",
        "GATEWAY_SELECTOR": "127.0.0.1:1",
        "ARTIFACTS_URL": folder.as_uri(),
        "GATEWAY_DATABASE": str(folder / "gateway.sqlite"),
        "LOG_FORMAT": "json",
    }
    return {**inherited, **own, **settings}


@asynccontextmanager
async def started(env: Mapping[str, str], *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(30):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


async def start_errors(folder: Path, **settings: str) -> list[dict[str, str]]:
    """Errors that the gateway logs when it cannot start."""
    async with started(environment(folder, **settings), "-m", "gateway") as process:
        out, err = await process.communicate()
    assert process.returncode == 1
    assert out == b""
    assert b"Traceback" not in err
    lines = [json.loads(line) for line in err.splitlines() if line.startswith(b"{")]
    return [line for line in lines if line["level"] == "error"]


async def test_process_starts_serves_and_stops(tmp_path: Path) -> None:
    port = free_port()
    settings = environment(tmp_path, GATEWAY_HTTP_LISTEN=f"127.0.0.1:{port}")
    async with started(settings, "-m", "gateway") as process:
        assert process.stderr
        async for line in process.stderr:
            if b"GatewayService" in line:
                break
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            secret = "?note=a-secret"
            answer = await client.get(f"http://127.0.0.1:{port}/healthz{secret}")
        assert answer.json()["service"] == "hugginggpt"
        process.send_signal(signal.SIGTERM)
        log = await process.stderr.read()
        assert await process.wait() == 0
    assert b"/healthz" in log
    assert b"a-secret" not in log


async def test_port_in_use_is_one_clear_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for setting in ("GATEWAY_HTTP_LISTEN", "GATEWAY_LISTEN"):
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            (error,) = await start_errors(tmp_path, **{setting: address})
            assert address in error["error"]
            assert error["remedy"]


@pytest.mark.parametrize("setting", ["GATEWAY_HTTP_LISTEN", "GATEWAY_LISTEN"])
async def test_public_address_requires_authentication(tmp_path: Path, setting: str) -> None:
    (error,) = await start_errors(tmp_path, **{setting: "0.0.0.0:0"})
    assert "without authentication" in error["error"]
    assert error["remedy"]


async def test_memory_use_is_small(tmp_path: Path) -> None:
    async with started(environment(tmp_path), "-c", RESIDENT) as process:
        out, _ = await process.communicate()
    assert 10 <= int(out.split()[-1]) / 2**20 <= LIGHT_MB
