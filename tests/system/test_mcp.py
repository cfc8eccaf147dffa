"""MCP clients: over HTTP, and with the command that a client starts."""

import re
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.types import ListRootsResult, Root

from tests.support.mcp_clients import opened_client, text_of
from tests.system.conftest import ROOT, LocalStack, environment

pytestmark = pytest.mark.slow

SIGN = ROOT / "tests" / "data" / "sign.png"
ALOUD = "Read the text in this image aloud"


async def uploaded(agent: Client) -> str:
    """Uploads a file with the agent's upload token and returns its id."""
    upload = (await agent.call_tool("upload", {"name": "sign.png"})).structured_content
    async with httpx.AsyncClient(trust_env=False) as http:
        sent = await http.put(upload["url"], content=SIGN.read_bytes())
    return str(sent.json()["id"])


async def test_agent_plans_and_runs_with_an_uploaded_file(local_stack: LocalStack) -> None:
    progress_messages = list[str]()

    async def record(progress: float, total: float | None, message: str | None) -> None:
        progress_messages.append(message or "")

    async with opened_client(urlsplit(local_stack.url).port or 0) as agent:
        files = [await uploaded(agent)]
        planned = await agent.call_tool("plan", {"request": ALOUD, "files": files})
        plan = planned.structured_content["plan"]
        assert [task["task"] for task in plan] == ["image-to-text", "text-to-speech"]
        done = await agent.call_tool(
            "run_plan", {"plan": plan, "files": files, "request": ALOUD}, progress_callback=record
        )
        assert done.structured_content["state"] == "completed", text_of(done)
        (made,) = done.structured_content["files"]
    assert made["media_type"] == "audio/wav"
    assert any(re.match("Task 2 (done|reused)", line) for line in progress_messages), progress_messages


async def test_mcp_starts_local_services_where_no_gateway_runs(tmp_path: Path) -> None:
    program = "from gateway.cli import app, connect; connect.DEFAULT_URL = 'http://127.0.0.1:9'; app(['mcp'])"
    command = StdioServerParameters(command=sys.executable, args=["-c", program], env=environment(tmp_path))
    async with Client(command) as agent:
        names = {tool.name for tool in (await agent.list_tools()).tools}
    assert "ask" in names


async def test_invalid_plan_reports_all_errors_at_once(local_stack: LocalStack) -> None:
    plan = [
        {"id": 1, "task": "juggling", "arguments": {"text": "x"}},
        {"id": 2, "task": "summarization", "arguments": {"text": {"task_id": 9, "output": "text"}}},
    ]
    async with opened_client(urlsplit(local_stack.url).port or 0) as agent:
        wrong = await agent.call_tool("run_plan", {"plan": plan})
    assert wrong.is_error
    assert "juggling" in text_of(wrong)
    assert "refers to task 9, which is not there" in text_of(wrong)


async def test_single_task_tool_returns_its_outputs(local_stack: LocalStack) -> None:
    async with opened_client(urlsplit(local_stack.url).port or 0, mode="legacy") as agent:
        arguments = {"image": await uploaded(agent)}
        done = await agent.call_tool("run_task", {"task": "image-to-text", "arguments": arguments})
    assert text_of(done).startswith("1. image-to-text, text: We are so happy")
    assert done.structured_content["tasks"][0]["outputs"]["details"]["pages"][0]["source"] == "ocr"


async def test_bridge_uploads_local_files_and_saves_results(local_stack: LocalStack, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(SIGN, project)

    async def list_roots(context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=project.as_uri())])

    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gateway.cli", "mcp"],
        env=environment(local_stack.home, HUGGINGGPT_URL=local_stack.url),
    )
    async with Client(command, list_roots_callback=list_roots) as agent:
        arguments = {"request": ALOUD, "files": ["sign.png"], "save_to": "spoken"}
        done = await agent.call_tool("ask", arguments)
    (saved,) = (project / "spoken").iterdir()
    assert saved.read_bytes().startswith(b"RIFF")
    assert f"Saved: {saved}" in text_of(done)
