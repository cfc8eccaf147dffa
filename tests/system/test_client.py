"""The Python client and the command line with a local stack."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.client import AsyncHuggingGPT, HuggingGPT
from tests.system.conftest import ROOT, LocalStack, environment

pytestmark = pytest.mark.slow

SIGN = ROOT / "tests" / "data" / "sign.png"
INVOICE = ROOT / "tests" / "data" / "invoice.png"


def test_readme_example_prints_the_documented_output(local_stack: LocalStack, tmp_path: Path) -> None:
    (program,) = re.findall(
        r"```python\n(from gateway\.client .*?)```", (ROOT / "gateway" / "README.md").read_text(), re.DOTALL
    )
    data = tmp_path / "tests"
    data.symlink_to(ROOT / "tests")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(local_stack.home, HUGGINGGPT_URL=local_stack.url),
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    (expected,) = re.findall(r"# (.*)$", program, re.MULTILINE)
    assert done.stdout.splitlines()[-1].endswith(expected)
    assert "speech.wav" in {file.name for file in (tmp_path / "out").iterdir()}


def test_sync_client_asks_reruns_and_continues_a_conversation(local_stack: LocalStack, tmp_path: Path) -> None:
    with HuggingGPT(local_stack.url) as client:
        run = client.ask("Read the text in this image aloud", [SIGN], policy="local")
        assert run.is_completed, run.failure
        (speech,) = client.save(run, tmp_path)
        assert speech.read_bytes().startswith(b"RIFF")
        again = client.ask(files=[SIGN], plan=run)
        assert [task.task["task"] for task in again.tasks] == [task.task["task"] for task in run.tasks]
        assert run.plan[0]["pinned_model"]
        more = client.ask("Is it happy?", conversation=run)
        assert more.conversation_id == run.run_id
        assert [each.run_id for each in client.conversation(run.run_id).runs] == [run.run_id, more.run_id]
        assert {"text-to-speech", "image-to-text"} <= {task.name for task in client.tasks()}
        assert {model.id for model in client.models("text-to-speech")} == {"espeak-ng"}


async def test_async_client_approves_part_of_a_plan(local_stack: LocalStack) -> None:
    async with AsyncHuggingGPT(local_stack.url) as client:
        waiting = await client.ask("Read the text in this image aloud", [SIGN], mode="approve")
        assert waiting.is_waiting
        first, *_ = waiting.plan
        await client.approve(waiting.run_id, [first])
        run = await client.wait(waiting.run_id)
        assert run.is_completed
        assert [task.task["task"] for task in run.tasks] == ["image-to-text"]
        events = [event async for event in client.watch(run.run_id)]
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert {"approval_requested", "plan_approved", "run_ended"} <= {event.kind for event in events}
        await client.delete(run.run_id)


@pytest.mark.parametrize("is_unchanged", [True, False], ids=["as planned", "another plan"])
def test_command_line_reviews_and_approves_a_plan(
    local_stack: LocalStack, tmp_path: Path, *, is_unchanged: bool
) -> None:
    out = ("--out", str(tmp_path / "out"), "--json")
    reviewed = local_stack.run_cli(
        "ask", "Read the text in this image aloud", "--file", str(SIGN), "--review", "--fresh", *out
    )
    output = json.loads(reviewed.out)
    assert reviewed.status == 0
    assert output["status"] == "awaiting_approval"
    assert output["results"] == []
    assert f"hugginggpt approve {output['run_id']}" in reviewed.err
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(output["plan"][:1]))
    approved = local_stack.run_cli("approve", output["run_id"], *(() if is_unchanged else ("--plan", str(plan))), *out)
    assert approved.out, approved.err
    ended = json.loads(approved.out)
    assert approved.status == 0, approved.err
    assert len(ended["results"]) == (2 if is_unchanged else 1), approved.err
    assert [Path(saved["path"]).suffix for saved in ended["artifacts"]] == ([".wav"] if is_unchanged else [])
    assert local_stack.run_cli("get", output["run_id"], "--out", str(tmp_path / "more")).status == (
        0 if is_unchanged else 1
    )


def test_continue_option_uses_the_last_conversation(local_stack: LocalStack) -> None:
    first = local_stack.ask("What is the total on this invoice?", INVOICE)
    continued = local_stack.run_cli(
        "ask", "--continue", "And when is it due?", "--json", "--out", str(local_stack.home / "out")
    )
    with HuggingGPT(local_stack.url) as client:
        second = client.get(json.loads(continued.out)["run_id"])
    assert second.conversation_id == first["run_id"]
