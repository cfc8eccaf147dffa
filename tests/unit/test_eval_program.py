import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from services.planner.plan import Decision, Draft, Task
from services.planner.request import Request
from services.planner.task_spec import Catalogue
from tests.eval.__main__ import arguments, main
from tests.eval.lines import Answer, BadLines, Graph, Line
from tests.eval.planners import Planner, outcomes
from tests.eval.scoring import scores
from tests.eval.tools import Spelling
from tests.support.plans import STANDARD

LINES: list[dict[str, Any]] = [
    {"id": "1", "request": "Describe 'example.jpg'.", "type": "single", "tasks": ["Image-to-Text"], "links": []},
    {
        "id": "2",
        "request": "Describe the image 'example.jpg' and translate the description to French.",
        "type": "chain",
        "tasks": ["Image-to-Text", "Translation"],
        "links": [["Image-to-Text", "Translation"]],
    },
    {"id": 3, "request": "Translate 'Hello' to French."},
]
PLANNED = [
    {"id": "1", "tasks": ["Image-to-Text"], "links": []},
    {"id": "2", "tasks": ["Image-to-Text", "Translation"], "links": [["Image-to-Text", "Translation"]]},
    {"id": 3, "tasks": ["Translation"], "links": []},
]


def written(path: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


async def test_output_is_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, predictions = written(tmp_path / "in.jsonl", LINES), tmp_path / "out.jsonl"
    await main(arguments([str(path), "--predictions", str(predictions), "--quiet"]))
    figures = json.loads(capsys.readouterr().out)
    assert figures["n"] == 3
    assert figures["labelled"] == 2
    assert figures["node_f1"] == 100.0
    assert figures["edge_f1"] == 100.0
    assert figures["exact"] == 100.0
    assert figures["by_type"]["chain"] == {"n": 1, "node_f1": 100.0, "edge_f1": 100.0, "exact": 100.0}
    assert figures["p50_ms"] <= figures["p95_ms"]
    assert figures["failures"] == []
    assert "EVAL_JUDGE_LLM_BASE_URL" in figures["paper"]["judge"]["absent"]
    assert [json.loads(line) for line in predictions.read_text(encoding="utf-8").splitlines()] == PLANNED


async def test_predictions_use_the_hub_names_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spelt = {"tasks": ["image-to-text"], "links": [], "files": [{"name": "example.jpg", "media_type": "image/jpeg"}]}
    path, predictions = written(tmp_path / "in.jsonl", [LINES[0] | spelt]), tmp_path / "out.jsonl"
    await main(arguments([str(path), "--predictions", str(predictions), "--quiet"]))
    assert json.loads(capsys.readouterr().out)["exact"] == 100
    assert json.loads(predictions.read_text(encoding="utf-8"))["tasks"] == ["image-to-text"]


async def test_unknown_label_is_reported_and_counts_as_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "in.jsonl", [LINES[0], LINES[0] | {"tasks": ["Cooking"]}])
    await main(arguments([str(path), "--quiet"]))
    printed = capsys.readouterr()
    assert "Cooking" in printed.err
    assert json.loads(printed.out)["node_f1"] == 50


async def test_invalid_line_stops_the_evaluation(tmp_path: Path) -> None:
    with pytest.raises(BadLines, match="line 2"):
        await main(arguments([str(written(tmp_path / "in.jsonl", [LINES[0], {"id": 1}]))]))


def test_unknown_planner_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments(["x.jsonl", "--planner", "oracle"])
    assert "embedded" in capsys.readouterr().err


async def test_exception_of_the_planner_is_a_failure_with_an_empty_plan() -> None:
    async def plan(asked: Request, catalogue: Catalogue) -> Draft:
        if asked.text == "break":
            raise ZeroDivisionError("no such thing")
        return Draft((Task(1, "translation"),), (), Decision("embedded", "", 0.9))

    label = Answer(Graph(("translation",)))
    lines = [Line(1, "go", "single", label), Line(2, "break", "single", label)]
    found = await outcomes(Planner(plan, concurrency=2), lines, STANDARD)
    figures = scores(lines, found, Spelling.HUB)
    assert figures["failures"] == [{"id": 2, "error": "ZeroDivisionError: no such thing"}]
    assert figures["node_f1"] == 66.67
    assert figures["exact"] == 50.0
