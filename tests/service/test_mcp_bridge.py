"""hugginggpt mcp: the same tools over standard input and output, with the files of the client's roots."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.types import ListRootsResult, Root

from protos.hugginggpt.v1.event_pb2 import RunEvent, TaskPlanned
from tests.support.api_keys import start_keyed_gateway
from tests.support.gateway import GatewayUnderTest, start_gateway
from tests.support.mcp_clients import MODES, text_of

pytestmark = pytest.mark.slow

both_forms = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path / "gateway") as gateway:
        yield gateway


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A root folder with a file, and links that point outside."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "note.txt").write_text("a note")
    (tmp_path / "secret.txt").write_text("a secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "way").symlink_to(tmp_path)
    return folder


@asynccontextmanager
async def bridged(
    port: int, *, mode: str = "auto", roots: Sequence[Path] | None = None, options: Sequence[str] = (), key: str = ""
) -> AsyncIterator[Client]:
    """A client that has started the command."""

    async def list_roots(context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=root.as_uri()) for root in roots or ()])

    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gateway.cli", "mcp", "--url", f"http://127.0.0.1:{port}", *options],
        env={**os.environ, "HUGGINGGPT_API_KEY": key},
    )
    known: dict[str, Any] = {"list_roots_callback": list_roots} if roots is not None else {}
    async with Client(command, mode=mode, **known) as client:
        yield client


@both_forms
async def test_file_in_root_is_uploaded_by_path(gateway: GatewayUnderTest, project: Path, mode: str) -> None:
    note = project / "note.txt"
    async with bridged(gateway.http_port, mode=mode, roots=[project]) as agent:
        tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
        assert "save_to" in tools["ask"].input_schema["properties"]
        assert "save_to" not in tools["plan"].input_schema["properties"]
        for named in (str(note), note.as_uri(), "note.txt"):
            result = await agent.call_tool("ask", {"request": "read it", "files": [named]})
            assert text_of(result) == "Done."
    for run in gateway.orchestrator.runs.values():
        (given,) = run.spec.inputs
        assert given.value.artifact.name == "note.txt"
        assert await gateway.store.get("default", given.value.artifact.sha256) == b"a note"


@both_forms
async def test_files_outside_roots_are_rejected(gateway: GatewayUnderTest, project: Path, mode: str) -> None:
    async with bridged(gateway.http_port, mode=mode, roots=[project]) as agent:
        outside = ("/etc/passwd", "../secret.txt", "link.txt", "way/secret.txt", "file:///etc/passwd", f"{project}/..")
        for named in outside:
            result = await agent.call_tool("ask", {"request": "read it", "files": [named]})
            assert result.is_error, named
            assert "(ROOTS)" in text_of(result)
        missing = await agent.call_tool("ask", {"request": "read it", "files": ["none.txt"]})
        assert "none.txt is not an existing file (FILE)" in text_of(missing)
        outside_roots = await agent.call_tool("ask", {"request": "x", "save_to": "/tmp"})
        assert "(ROOTS)" in text_of(outside_roots)
    assert not gateway.orchestrator.runs


async def test_without_roots_only_root_option_is_readable(gateway: GatewayUnderTest, project: Path) -> None:
    async with bridged(gateway.http_port) as agent:
        result = await agent.call_tool("ask", {"request": "read it", "files": [str(project / "note.txt")]})
        assert "start hugginggpt mcp with --root FOLDER" in text_of(result)
        assert text_of(await agent.call_tool("ask", {"request": "x"})) == "Done."
    async with bridged(gateway.http_port, options=["--root", str(project)]) as agent:
        assert not (await agent.call_tool("ask", {"request": "x", "files": ["note.txt"]})).is_error


async def test_progress_reaches_the_client(gateway: GatewayUnderTest) -> None:
    messages = list[str]()

    async def record(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message or "")

    gateway.orchestrator.script = [_planned(), *gateway.orchestrator.script]
    async with bridged(gateway.http_port) as agent:
        await agent.call_tool("ask", {"request": "x"}, progress_callback=record)
    assert "1. captioning" in messages


async def test_unknown_key_is_reported_on_stderr(tmp_path: Path) -> None:
    async with start_keyed_gateway(tmp_path) as keyed_gateway:
        token = await keyed_gateway.token()
        async with bridged(keyed_gateway.gateway.http_port, key=token) as agent:
            assert text_of(await agent.call_tool("ask", {"request": "x"})) == "Done."
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "gateway.cli",
                "mcp",
                "--url",
                f"http://127.0.0.1:{keyed_gateway.gateway.http_port}",
            ),
            env={**os.environ, "HUGGINGGPT_API_KEY": "nobodys"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
    assert out == b""
    assert b"invalid API key" in err


def _planned() -> RunEvent:
    event = RunEvent(task_planned=TaskPlanned())
    event.task_planned.task.id, event.task_planned.task.task = 1, "captioning"
    return event
