import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.eval.__main__ import arguments, main
from tests.eval.llm import NoEndpoint
from tests.fakes import ErrorReply, ScriptedLLM, TextReply

LINE = {"id": "1", "request": "Describe 'a.jpg'.", "type": "single", "tasks": ["Image-to-Text"], "links": []}
PLAN = json.dumps({"tasks": [{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "<file1>"}}]})


def answered(body: Mapping[str, Any]) -> TextReply | ErrorReply:
    return ErrorReply(400) if "break it" in body["messages"][-1]["content"] else TextReply(PLAN)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """The last line: without the program's own telemetry, logs go where it prints."""
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (LINE, LINE | {"request": "break it"})))
    return str(path)


@pytest.fixture
def llm_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("PLANNER_LLM_MODEL", "scripted")
    return monkeypatch


async def test_llm_plans_are_scored_and_unusable_replies_are_failures(
    file: str, llm_environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ScriptedLLM.serving(answered) as endpoint:
        llm_environment.setenv("PLANNER_LLM_BASE_URL", endpoint.base_url)
        await main(arguments([file, "--planner", "llm", "--quiet"]))
    figures = printed(capsys)
    assert figures["planner"] == "llm"
    assert figures["node_f1"] == 66.67
    assert figures["exact"] == 50.0
    assert [failure["id"] for failure in figures["failures"]] == ["1"]


async def test_ablation_varies_number_and_variety_of_demonstrations(
    file: str, llm_environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ScriptedLLM.serving(answered) as endpoint:
        llm_environment.setenv("PLANNER_LLM_BASE_URL", endpoint.base_url)
        await main(arguments([file, "--ablation", "demonstrations", "--json", "--quiet"]))
    rows = printed(capsys)["rows"]
    assert [(row["count"], row["variety"]) for row in rows] == [
        (0, 0.0),
        (1, 0.0),
        (2, 0.0),
        (2, 0.8),
        (4, 0.0),
        (4, 0.8),
        (8, 0.0),
        (8, 0.8),
    ]
    lengths = {len(str(request["messages"])) for request in endpoint.requests}
    assert len(lengths) > len({row["count"] for row in rows})


async def test_missing_endpoint_is_an_error_with_a_remedy(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLM_BASE_URL", raising=False)
    with pytest.raises(NoEndpoint, match="set LLM_BASE_URL and LLM_MODEL"):
        await main(arguments([file, "--planner", "llm", "--quiet"]))
