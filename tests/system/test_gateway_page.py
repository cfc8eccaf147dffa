"""The commands and programs of gateway/README.md, in the order of each section, at a running local stack.

test_readme_grpc.py has those of its section on gRPC, test_client.py the first program of the Python client.
"""

import json
import re
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.support.pages import code_blocks, read_section
from tests.system.conftest import ROOT, LocalStack, environment, start_local_stack
from tests.system.reader import Reader

pytestmark = [pytest.mark.slow, pytest.mark.needs("bash", "curl")]

PAGE = ROOT / "gateway" / "README.md"


def shell(section: str) -> list[str]:
    """The shell blocks of a section."""
    return list(code_blocks(read_section(PAGE, section), "sh"))


def find_id(prefix: str, output: str) -> str:
    """The first id with a prefix in the output of a command."""
    found = re.search(rf"\b{prefix}_[0-9a-f]+\b", output)
    assert found, output
    return found[0]


@pytest.fixture
def reader(local_stack: LocalStack, tmp_path: Path) -> Reader:
    return Reader(tmp_path, local_stack)


def test_http_requests_return_a_run_and_its_events(reader: Reader) -> None:
    (commands,) = shell("HTTP")
    output = reader.type(commands)
    assert "691.74" in output
    assert "run_ended" in output


def test_command_line_examples_succeed(reader: Reader) -> None:
    (commands,) = shell("Command line")
    assert "image-to-text" in reader.type(commands)


def test_openai_program_prints_a_link_to_the_recording(reader: Reader, local_stack: LocalStack) -> None:
    (program,) = code_blocks(read_section(PAGE, "OpenAI's API"), "python")
    assert f"[speech.wav]({local_stack.url}/v1/artifacts/" in reader.run_program(program)


async def test_mcp_configuration_starts_a_server_with_the_documented_tools(
    reader: Reader, local_stack: LocalStack
) -> None:
    section = read_section(PAGE, "MCP")
    (configuration,) = code_blocks(section, "json")
    server = json.loads(configuration)["mcpServers"]["hugginggpt"]
    assert server["command"] == "hugginggpt"
    command = StdioServerParameters(
        command="bash",
        args=["-c", 'exec "$0" -m gateway.cli "$@"', reader.python, *server["args"]],
        env=environment(local_stack.home, HUGGINGGPT_URL=local_stack.url),
        cwd=reader.folder,
    )
    async with Client(command) as agent:
        tools = {tool.name for tool in (await agent.list_tools()).tools}
    listed = section.partition(" over streamable HTTP")[0]
    assert set(re.findall(r"`(\w+)`", listed)) <= tools


def test_pipeline_examples_save_run_export_and_resume(reader: Reader) -> None:
    commands, _over_http = shell("Pipelines and batches")
    before_resuming, resume, after = re.split(r"^(hugginggpt resume .*\n)", commands, flags=re.MULTILINE)
    output = reader.type(before_resuming)
    assert "2 items: 2 completed" in output
    assert "\nformat: hugginggpt/pipeline/1\n" in (reader.folder / "read-aloud.yaml").read_text(encoding="utf-8")
    reader.type(resume.replace("BATCH", find_id("batch", output)))
    reader.type(after)
    assert (reader.folder / "summaries" / "results.csv").is_file()


def test_batch_program_prints_the_documented_output(reader: Reader) -> None:
    commands, _over_http = shell("Pipelines and batches")
    reader.type(commands.partition("\n")[0])
    (program,) = code_blocks(read_section(PAGE, "Pipelines and batches"), "python")
    (expected,) = re.findall(r"# (.*)$", program, re.MULTILINE)
    assert expected in reader.run_program(program).splitlines()


def test_batch_over_http_reports_its_items(reader: Reader) -> None:
    commands, over_http = shell("Pipelines and batches")
    reader.type(commands.partition("\n")[0])
    upload, create, follow = re.split(
        r"^(?=curl .*pipeline-batches -H|curl .*BATCH/events)", over_http, flags=re.MULTILINE
    )
    file = find_id("file", reader.type(upload))
    batch = find_id("batch", reader.type(create.replace("FILE", file)))
    output = reader.type(follow.replace("BATCH", batch))
    assert "sign.png,completed" in output
    assert "far.png,failed" in output


def test_approved_part_of_a_plan_is_run_traced_recorded_and_verified(reader: Reader) -> None:
    section = read_section(PAGE, "Control a run")
    (commands,) = code_blocks(section, "sh")
    create, approve = re.split(r"^(?=curl .*/approve)", commands, flags=re.MULTILINE)
    run = find_id("run", reader.type(create))
    reader.type(approve.replace("RUN", run))
    reader.type(f"hugginggpt watch {run}")
    assert "image-to-text" in reader.type(f"hugginggpt trace {run}")
    assert "rapidocr" in reader.type(f"hugginggpt record {run}")
    assert "image-to-text: same" in reader.type(f"hugginggpt verify {run}")


def test_webhook_is_created(reader: Reader) -> None:
    (command,) = re.findall(r"`(hugginggpt webhooks create [^`]*)`", read_section(PAGE, "Webhooks"))
    assert "whsec_" in reader.type(command)


def test_created_key_authenticates_requests(tmp_path: Path) -> None:
    (commands,) = shell("Authentication")
    with start_local_stack(tmp_path / "home", GATEWAY_AUTHENTICATION="keys") as stack:
        folder = tmp_path / "folder"
        folder.mkdir()
        reader = Reader(folder, stack)
        without_start = re.sub(r"^hugginggpt up &.*\n", "", commands, flags=re.MULTILINE)
        assert without_start != commands
        assert '"image-to-text"' in reader.type(without_start)
    assert "shop" in (folder / "audit.jsonl").read_text(encoding="utf-8")
