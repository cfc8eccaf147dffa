"""The API conforms to its OpenAPI document, checked by schemathesis."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from services.orchestrator.settings import Settings
from tests.service.test_gateway_origin import flat
from tests.support.gateway import start_gateway
from tests.support.orchestrator import END, ScriptedPeers, task
from tests.support.pipeline_gateway import start_pipeline_gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = 240.0
HOOKS = Path(__file__).parents[1] / "support" / "schemathesis_hooks.py"
CONFIGURATION = Path(__file__).parents[1] / "schemathesis.toml"

OTHERS = re.compile(r"/|/openapi\.json|/(docs|web)(/.*)?|/mcp(/.*)?")
"""The page, the documentation, and routes that are described in other ways."""


async def schemathesis(url: str, folder: Path) -> tuple[int | None, str]:
    """Exit status and output of schemathesis."""
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("schemathesis"), "--config-file", CONFIGURATION, "run", url),
        *("--checks", "all", "--no-color", "--request-timeout", "15"),
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode()


async def test_routes_conform_to_the_openapi_document(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> None:
    peers.plan(task(1), END)
    async with start_pipeline_gateway(peers, settings, tmp_path) as pipeline_gateway:
        status, output = await schemathesis(
            f"http://127.0.0.1:{pipeline_gateway.gateway.http_port}/openapi.json", tmp_path
        )
    assert status == 0, output
    cases = re.search(r"(\d+) generated", output)
    assert cases, output
    assert int(cases[1]) > 1000


async def test_every_route_has_a_documented_response_and_example(tmp_path: Path) -> None:
    async with start_gateway(tmp_path) as gateway:
        described = (await gateway.http.get("/openapi.json")).json()["paths"]
        routes = [(route.path, method) for route in flat(gateway.app.routes) for method in route.methods]
    assert len(routes) > 30
    for path, method in routes:
        if OTHERS.fullmatch(path) or method == "HEAD":
            continue
        operation = described[path][method.lower()]
        assert operation["description"]
        assert operation["tags"]
        good = {status: answer for status, answer in operation["responses"].items() if status[0] in "23"}
        assert good, (path, method)
        for status, answer in good.items():
            assert answer["description"], (path, method, status)
            for media_type, content in answer.get("content", {}).items():
                assert "schema" in content, (path, method, status)
                assert "example" in content or media_type == "*/*", (path, method, status)
        for body in operation.get("requestBody", {}).get("content", {}).values():
            assert {"example", "examples"} & body.keys(), (path, method)
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), (path, method, parameter["name"])
