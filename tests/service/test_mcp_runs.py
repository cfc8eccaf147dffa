"""Plans and single tasks of agents, run by an orchestrator, and the resources that result."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client
from mcp.types import ResourceLink

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import expert_pb2
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.task_pb2 import CatalogTask
from services.common.artifacts import ArtifactStore
from services.common.errors import InvalidRequest
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.fakes import ScriptedSelector
from tests.support.gateway import GatewayUnderTest, start_gateway
from tests.support.mcp_clients import opened_client, text_of
from tests.support.orchestrator import END, ScriptedPeers, echo, ref, task

LARGE = b"RIFF" + (2_000_000).to_bytes(4, "little") + b"WAVE" + bytes(2_000_000)


@pytest.fixture
async def gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    known = [CatalogTask(spec=spec) for spec in standard_tasks().values()]
    async with serve_orchestrator(settings) as running:
        given = {
            "orchestrator": f"127.0.0.1:{running.port}",
            "ARTIFACTS_URL": settings.artifacts_url,
            "mcp_tasks": "summarization, juggling",
        }
        async with start_gateway(tmp_path, selector=ScriptedSelector(known), settings=given) as gateway:
            yield gateway


def speaking(peers: ScriptedPeers, store: ArtifactStore) -> None:
    """Makes the expert's output a large file."""

    async def speak(_request: expert_pb2.InferRequest) -> dict[str, Value]:
        return {"audio": Value(artifact=await store.put("default", LARGE, media_type="audio/wav", name="speech.wav"))}

    peers.infer["model"] = speak


async def test_plan_can_be_sent_back_to_run_plan(gateway: GatewayUnderTest, peers: ScriptedPeers) -> None:
    peers.plan(task(1), task(2, text=ref(1)), END)
    async with opened_client(gateway.http_port) as agent:
        planned = await agent.call_tool("plan", {"request": "shorten it twice"})
        plan = planned.structured_content["plan"]
        assert [item["task"] for item in plan] == ["summarization", "summarization"]
        result = await agent.call_tool("run_plan", {"plan": plan})
        assert text_of(result).splitlines()[-1] == "2. summarization, text: hello!!"
        assert "answer" not in result.structured_content
        first = result.structured_content["tasks"][0]
        assert first == {
            "id": 1,
            "task": "summarization",
            "state": "succeeded",
            "model": "model",
            "outputs": {"text": "hello!"},
        }
        answered = await agent.call_tool("run_plan", {"plan": plan, "request": "what came of it?"})
        assert text_of(answered) == "so it is"


async def test_all_errors_of_a_plan_are_reported_together(gateway: GatewayUnderTest) -> None:
    async with opened_client(gateway.http_port) as agent:
        result = await agent.call_tool("run_plan", {"plan": [{"id": 1, "task": ""}]})
    assert result.is_error
    assert "task 1 has no name; task 2 needs task 9" in text_of(result)


async def test_single_task_runs_by_name(gateway: GatewayUnderTest) -> None:
    async with opened_client(gateway.http_port) as agent:
        result = await agent.call_tool("run_task", {"task": "summarization", "arguments": {"text": "long"}})
        assert result.structured_content["tasks"][0]["outputs"] == {"text": "long!"}
        wrong = await agent.call_tool("run_task", {"task": "summarization", "arguments": {"words": "long"}})
        assert "summarization has no input 'words'" in text_of(wrong)
        none = await agent.call_tool("run_task", {"task": "image-to-text", "arguments": {"image": "a cat"}})
        assert "arguments.image: 'a cat' is not a file reference" in text_of(none)
        outside = {"task": "image-to-text", "arguments": {"image": "https://example.org/a.png"}, "policy": "local"}
        assert "data policy of this request is local, and example.org is an external host" in text_of(
            await agent.call_tool("run_task", outside)
        )


async def test_tasks_lists_all_and_describes_one(gateway: GatewayUnderTest) -> None:
    async with opened_client(gateway.http_port) as agent:
        everything = await agent.call_tool("tasks", {})
        assert len(everything.structured_content["tasks"]) == len(standard_tasks())
        assert len(text_of(everything)) < 6_000
        found = await agent.call_tool("tasks", {"about": "shorter text"})
        assert [found["name"] for found in found.structured_content["tasks"]] == ["summarization"]
        (whole,) = (await agent.call_tool("tasks", {"name": "summarization"})).structured_content["tasks"]
    assert whole["takes"]["required"] == ["text"]
    assert whole["takes"]["properties"]["parameters"]["properties"]["max_length"]["maximum"] == 8192


async def test_exposed_tasks_are_tools(gateway: GatewayUnderTest) -> None:
    async with opened_client(gateway.http_port) as agent:
        tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
        assert "juggling" not in tools
        assert tools["summarization"].input_schema["required"] == ["text"]
        result = await agent.call_tool("summarization", {"text": "long", "parameters": {"max_length": 5}})
        assert result.structured_content["tasks"][0]["outputs"] == {"text": "long!"}
        assert (await agent.call_tool("summarization", {"text": 1})).is_error


async def test_large_output_is_returned_as_link(gateway: GatewayUnderTest, peers: ScriptedPeers) -> None:
    speaking(peers, gateway.store)
    async with opened_client(gateway.http_port) as agent:
        result = await agent.call_tool("run_task", {"task": "text-to-speech", "arguments": {"text": "hi"}})
        (link,) = [block for block in result.content if isinstance(block, ResourceLink)]
        (made,) = result.structured_content["files"]
        assert link.uri == made["uri"]
        assert link.mime_type == "audio/wav"
        assert link.size == len(LARGE)
        assert len(result.model_dump_json()) < 3_000
        assert (await gateway.http.get(made["url"])).content == LARGE
        (read,) = (await agent.read_resource(link.uri)).contents
        assert read.mime_type == "text/uri-list"
        assert read.text == made["url"]  # type: ignore[union-attr]  # it is text


async def test_result_can_be_input_of_next_call(gateway: GatewayUnderTest, peers: ScriptedPeers) -> None:
    speaking(peers, gateway.store)
    async with opened_client(gateway.http_port) as agent:
        result = await agent.call_tool("run_task", {"task": "text-to-speech", "arguments": {"text": "hi"}})
        (made,) = result.structured_content["files"]
        peers.infer["model"] = echo
        peers.plan(task(1), END)
        for named in (made["uri"], made["url"]):
            assert not (await agent.call_tool("ask", {"request": "again", "files": [named]})).is_error


async def test_long_output_is_read_as_resource(gateway: GatewayUnderTest) -> None:
    long = "word " * 2_000
    async with opened_client(gateway.http_port) as agent:
        result = await agent.call_tool("run_task", {"task": "summarization", "arguments": {"text": long}})
        output = result.structured_content["tasks"][0]["outputs"]["text"]
        assert output["size_bytes"] == len(long) + 1
        assert await _text(agent, output["uri"]) == f"{long}!"


async def test_failure_is_reported_with_remedy(gateway: GatewayUnderTest, peers: ScriptedPeers) -> None:
    async def refuse(_request: expert_pb2.InferRequest) -> dict[str, Value]:
        raise InvalidRequest("the text is Greek", remedy="send English")

    peers.infer["model"] = refuse
    async with opened_client(gateway.http_port) as agent:
        result = await agent.call_tool("run_task", {"task": "summarization", "arguments": {"text": "long"}})
    assert result.is_error
    assert "Task 1 (summarization) failed: the text is Greek. Remedy: send English" in text_of(result)


async def _text(agent: Client, uri: str) -> str:
    (content,) = (await agent.read_resource(uri)).contents
    return str(content.text)  # type: ignore[union-attr]  # it is text
