"""Runs Prometheus, which scrapes the processes of a test once a second."""

import asyncio
import json
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from services.local.ports import free_address
from tests.observability.promql import Known


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus server that has scraped its targets often enough to compute rates."""

    http: httpx.AsyncClient
    targets: int

    async def ask(self, query: str) -> list[Any]:
        """Result of an instant query."""
        reply = await self._got("query", query=query)
        return list(reply["result"])

    async def known(self) -> Known:
        """Label names by metric."""
        found: dict[str, set[str]] = {}
        for series in await self._got("series", **{"match[]": '{__name__!=""}'}):
            found.setdefault(series["__name__"], set()).update(series.keys() - {"__name__"})
        return found

    async def read_all(self) -> None:
        """Waits until every target has been scraped twice."""
        since = time.time()
        async with asyncio.timeout(60):
            while True:
                if len(await self._answered(f"timestamp(up == 1) > {since + 2}")) == self.targets:
                    return
                await asyncio.sleep(0.2)

    async def _answered(self, query: str) -> list[Any]:
        """Result of a query; empty while the server is starting."""
        try:
            return await self.ask(query)
        except (httpx.TransportError, ValueError):
            return []

    async def _got(self, what: str, **parameters: str) -> Any:
        reply = (await self.http.get(f"/api/v1/{what}", params=parameters)).json()
        assert reply["status"] == "success", (parameters, reply)
        return reply["data"]


@asynccontextmanager
async def reading(targets: Sequence[str], folder: Path) -> AsyncIterator[Prometheus]:
    """Runs Prometheus until the block exits.

    Args:
        targets: host:port of running processes.
        folder: Receives its data.
    """
    jobs = [{"job_name": "hugginggpt", "static_configs": [{"targets": [*targets]}]}]
    config = folder / "prometheus.json"
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    address = free_address("127.0.0.1:0", option="")
    options = [f"--storage.tsdb.path={folder / 'series'}", f"--web.listen-address={address}"]
    process = await asyncio.create_subprocess_exec(
        "prometheus", f"--config.file={config}", *options, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as http:
            prometheus = Prometheus(http, len(targets))
            await prometheus.read_all()
            yield prometheus
    finally:
        process.kill()
        await process.wait()
