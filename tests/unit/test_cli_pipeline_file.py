"""Pipeline files: serialization, parsing, and errors with line numbers."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from rich.console import Console

from gateway.cli import document_file, pipeline_file
from gateway.cli.errors import USAGE, Problem
from gateway.cli.plan_graph import flow, render
from gateway.client import Pipeline, Port
from protos.hugginggpt.pipeline_file import pipeline_schema

ANSWER = """\
format: hugginggpt/pipeline/1
name: answer
description: |
  Answers a question
  about a page.
policy: local
inputs:
  - {name: what, modality: text, required: true, description: The question.}
plan:
  - id: 1
    task: document-question-answering
    args:
      image: {input: page}
      question: {input: what}
"""
TASKS = (
    {"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "a"}}, "source": "read it"},
    {
        "id": 2,
        "task": "text-generation",
        "arguments": {"text": [{"task_id": 1, "output": "text"}, "so:\nor \x1b[2Jso"]},
        "parameters": {"max_new_tokens": 9},
        "pinned_model": "m",
        "pinned_revision": "0123456789abcdef",
    },
    {"id": 3, "task": "text-to-speech", "arguments": {"text": "no: 12:30"}},
    {"id": 4, "task": "text-classification", "arguments": {"text": {"task_id": 1, "output": "text"}}},
)
PIPELINE = Pipeline(
    name="saved",
    version=3,
    description="Größe: what?",
    inputs=(Port(name="a", modality="image", required=True), Port(name="b", modality="text", description="more")),
    outputs=(Port(name="audio", modality="audio"), Port(name="text", modality="text")),
    plan=TASKS,
)


def imported(folder: Path, text: str, name: str = "") -> pipeline_file.PipelineFile:
    file = folder / "pipeline.yaml"
    file.write_text(text, "utf-8")
    return pipeline_file.parse(document_file.read(file), name)


def test_serialized_pipeline_is_valid_and_parses_back(tmp_path: Path) -> None:
    text = pipeline_file.serialize(PIPELINE, "https://gateway.example")
    schema, origin, *_ = text.splitlines()
    assert schema == "# yaml-language-server: $schema=https://gateway.example/v1/pipeline.schema.json"
    assert origin.startswith("# saved, version 3")
    Draft202012Validator(json.loads(pipeline_schema())).validate(yaml.safe_load(text))
    read = imported(tmp_path, text)
    assert read.name == "saved"
    assert read.description == "Größe: what?"
    assert read.policy is None
    assert [(port.name, port.modality) for port in read.inputs] == [("a", "image"), ("b", "text")]
    assert [task.get("args") for task in read.plan] == [task["arguments"] for task in TASKS]
    assert read.plan[1]["model"] == "m"
    assert read.plan[1]["revision"] == "0123456789abcdef"
    assert read.plan[0]["source"] == "read it"


def test_a_file_may_be_json(tmp_path: Path) -> None:
    assert imported(tmp_path, json.dumps(yaml.safe_load(ANSWER)), "other").name == "other"
    for plan in ('{"run_id": "run_1", "plan": [{"id": 1, "task": "x"}]}', "\ufeff- {id: 1, task: x}"):
        assert imported(tmp_path, plan, "a").plan[0]["task"] == "x"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("pipeline/1", "pipeline/12"), "line 1: hugginggpt/pipeline/12 is newer than the formats"),
        (("hugginggpt/pipeline/1", "recipe"), "line 1: recipe is not a pipeline format"),
        (("hugginggpt/pipeline/1", "[]"), "line 1: \\[\\] is not a pipeline format"),
        (("name: answer", "nom: answer"), "line 1: "),
        (("name: answer", "name: An answer"), "line 2: name: "),
        (("name: answer", "name: 5"), "line 2: name: "),
        (("policy: local", "policy: secret"), "line 6: policy: "),
        (("args:", "arguments:"), "line 10: plan.0: "),
        (("id: 1", "id: one"), "line 10: plan.0.id: "),
        (("id: 1", "id: &one 1\n    revision: *one"), "line 11: is neither JSON nor YAML: aliases are not allowed"),
        (("id: 1", "id: 1\n    id: 2"), "line 11: is neither JSON nor YAML: duplicate key id"),
        (("id: 1", "1: id"), "line 10: is neither JSON nor YAML: a key is not text"),
        (("plan:", "plan"), "is neither JSON nor YAML"),
        (("id: 1", f"id: {'[' * 5000}"), "is neither JSON nor YAML"),
        (("name: answer", "name: !!python/object:os.system x"), "line 2: is neither JSON nor YAML"),
        (("id: 1", "id: !!int x"), "line 10: is neither JSON nor YAML: tags are not allowed"),
        (("name: answer", "name: !!bool foo"), "line 2: is neither JSON nor YAML: tags are not allowed"),
        (("name: answer", "name: !!timestamp foo"), "line 2: is neither JSON nor YAML: tags are not allowed"),
        (("id: 1", "id: !!set [1]"), "line 10: is neither JSON nor YAML: tags are not allowed"),
        (("id: 1", "id: !!map [1]"), "line 10: is neither JSON nor YAML: tags are not allowed"),
        (("id: 1", f"id: {'9' * 5000}"), "line 10: is neither JSON nor YAML: a number has too many digits"),
        (("name: answer", 'name: "\\UFFFFFFFF"'), "line 2: is neither JSON nor YAML: invalid character"),
        (("name: answer", 'name: "\\U00110000"'), "line 2: is neither JSON nor YAML: invalid character"),
        ((ANSWER, f'{{"plan": [{"9" * 5000}]}}'), "has a number with too many digits"),
        (
            (ANSWER, '{"plan": [{"id": 1, "task": "x", "args": {"a": NaN}}]}'),
            "contains a value that JSON cannot express",
        ),
        (("id: 1", "id: 1e999"), "contains a value that JSON cannot express"),
        ((ANSWER, '{"plan": [{"id": 1, "task": "\\ud800"}]}'), "contains a value that JSON cannot express"),
        (
            (ANSWER, "a: [" + "b, " * document_file.MAX_NODES + "]"),
            "line 1: .* more than 50,000 nodes; use JSON",
        ),
        ((ANSWER, "# nothing"), "contains no plan"),
        ((ANSWER, "[" * 100_000), "nested too deeply|neither JSON nor YAML"),
        ((ANSWER, "x" * (document_file.YAML_BYTES + 1)), "too long for YAML"),
        ((ANSWER, '{"plan": []}'), "contains no plan"),
    ],
)
def test_invalid_file_reports_line_and_remedy(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(Problem, match=message) as problem:
        imported(tmp_path, ANSWER.replace(*change), "name")
    assert problem.value.status == USAGE
    assert bool(problem.value.remedy)


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("no", "no"),
        ("2030-01-31", "2030-01-31"),
        ("12:30", "12:30"),
        ("010", "010"),
        ("0x1f", "0x1f"),
        ("1_000", "1_000"),
        ("<<", "<<"),
        (".nan", ".nan"),
        ("=", "="),
        ("-5", -5),
        ("2.5e-3", 0.0025),
        ("true", True),
        ("~", None),
        ('"5"', "5"),
    ],
)
def test_yaml_scalars_have_json_types(tmp_path: Path, scalar: str, value: Any) -> None:
    read = imported(tmp_path, ANSWER.replace("{input: what}", scalar))
    assert read.plan[0]["args"]["question"] == value


def test_plan_tree_nests_tasks_below_dependencies() -> None:
    shown = StringIO()
    for tree in render(PIPELINE.inputs, PIPELINE.plan):
        Console(file=shown, width=200).print(tree)
    assert [line.rstrip() for line in shown.getvalue().splitlines()] == [
        "a  image",
        "└── 1 image-to-text  image ← a  any model",
        '    ├── 2 text-generation  text ← 1.text and "so:\\nor \\u001b[2Jso", max_new_tokens 9  m@0123456789ab',
        "    └── 4 text-classification  text ← 1.text  any model",
        "b  text, optional  more",
        '3 text-to-speech  text ← "no: 12:30"  any model',
    ]
    assert flow(PIPELINE.inputs, PIPELINE.outputs) == "image, text → audio, text"
