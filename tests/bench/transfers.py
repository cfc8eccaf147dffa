"""Speed of uploads to the gateway and downloads from it, and the memory that uploads take."""

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import httpx

from services.local.ports import free_address
from tests.bench.processes import Running, service, start_testbed
from tests.bench.rows import Row, median
from tests.support.s3 import serving_s3

LARGE = 1_000_000_000
ON_S3 = 200_000_000
"""Smaller, since the test's S3 server stores objects in memory."""

REPEATS = 3
POLL_SECONDS = 0.05
UPLOAD_MBPS, DOWNLOAD_MBPS, GROWTH_MB = 300, 500, 64
ACCESS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@dataclass(frozen=True)
class GatewayProcess:
    """A gateway, and the port of its HTTP API."""

    process: Running
    port: int


@dataclass
class Upload:
    """A completed upload.

    Attributes:
        seconds: as the client measures them.
        cpu_seconds: of the gateway.
        growth_mb: largest increase of the gateway's resident memory.
        sha256: of the file.
    """

    seconds: float
    cpu_seconds: float
    growth_mb: float
    sha256: str


async def rows() -> list[Row]:
    """Figures of one large file, with a local store and with S3."""
    with TemporaryDirectory() as home:
        async with start_gateway(Path(home)) as gateway:
            local = [await upload(gateway, LARGE) for _ in range(REPEATS)]
            down = [await download(gateway.port, f"/v1/artifacts/{local[0].sha256}", LARGE) for _ in range(REPEATS)]
    with TemporaryDirectory() as home, serving_s3() as endpoint:
        await _create_bucket(endpoint)
        os.environ.update(ACCESS, AWS_ENDPOINT_URL=endpoint)
        async with start_gateway(Path(home), "s3://bench") as gateway:
            remote = await upload(gateway, ON_S3)
            redirected = await _redirected(gateway.port, remote.sha256)
    growth = max(one.growth_mb for one in local)
    busy = median([one.cpu_seconds for one in local])
    note = f"a form with one file of {LARGE / 1e9:g} GB; {busy:g} s of CPU time"
    on_s3 = f"{ON_S3 / 1e6:g} MB, moto's server"
    up = median([LARGE / 1e6 / one.seconds for one in local])
    out = median([LARGE / 1e6 / seconds for seconds in down])
    presigned = ON_S3 / 1e6 / redirected
    return [
        Row("bytes.upload_mb_per_s", up, "MB/s", UPLOAD_MBPS, note=note, at_least=True),
        Row("bytes.upload_growth_mb", round(growth, 1), "MB", GROWTH_MB, note="resident memory at its highest"),
        Row("bytes.download_mb_per_s", out, "MB/s", DOWNLOAD_MBPS, at_least=True),
        Row("bytes.s3_upload_mb_per_s", median([ON_S3 / 1e6 / remote.seconds]), "MB/s", note=on_s3),
        Row("bytes.s3_upload_growth_mb", round(remote.growth_mb, 1), "MB", GROWTH_MB, note=on_s3),
        Row("bytes.s3_presigned_mb_per_s", median([presigned]), "MB/s", note=f"by redirect; {on_s3}"),
    ]


@asynccontextmanager
async def start_gateway(home: Path, store: str = "") -> AsyncIterator[GatewayProcess]:
    address = free_address("127.0.0.1:0", option="")
    os.environ["ARTIFACTS_URL"] = store or (home / "artifacts").as_uri()
    try:
        async with (
            start_testbed(home) as testbed,
            service(
                "gateway",
                "GATEWAY",
                home,
                orchestrator=testbed.orchestrator.address,
                http_listen=address,
                upload_bytes=str(2 * LARGE),
            ) as process,
        ):
            yield GatewayProcess(process, int(address.rpartition(":")[2]))
    finally:
        del os.environ["ARTIFACTS_URL"]


async def _create_bucket(endpoint: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        (await client.put(f"{endpoint}/bench")).raise_for_status()


async def upload(gateway: GatewayProcess, size: int) -> Upload:
    before, used = await gateway.process.resident_mb(), gateway.process.cpu_seconds()
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.upload_client", str(gateway.port), str(size), stdout=PIPE
    )
    assert client.stdout
    answer = asyncio.create_task(client.stdout.read())
    highest = before
    while not answer.done():
        highest = max(highest, await gateway.process.resident_mb())
        await asyncio.wait((answer,), timeout=POLL_SECONDS)
    await client.wait()
    report = json.loads(await answer)
    return Upload(report["seconds"], gateway.process.cpu_seconds() - used, highest - before, report["sha256"])


async def download(port: int, path: str, size: int) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4 * 1024 * 1024)
    began = time.perf_counter()
    writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    received = 0
    while piece := await reader.read(1024 * 1024):
        received += len(piece)
    writer.close()
    if received != size:
        raise RuntimeError(f"received {received} bytes instead of {size}")
    return time.perf_counter() - began


async def _redirected(port: int, sha256: str) -> float:
    async with httpx.AsyncClient(trust_env=False) as client:
        began = time.perf_counter()
        redirect = await client.get(f"http://127.0.0.1:{port}/v1/artifacts/{sha256}")
        redirected = time.perf_counter() - began
    target = urlsplit(redirect.headers["location"])
    return redirected + await download(target.port or 80, f"{target.path}?{target.query}", ON_S3)
