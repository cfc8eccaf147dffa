"""tests/eval/data/own.jsonl agrees with its README: complete, consistent, and in the standard vocabulary."""

import json
import mimetypes
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.artifact_pb2 import Modality
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.planner.plan import File, modalities
from tests.eval.training.examples import TASKS_OF_RULES

DATA = Path(__file__).parent.parent / "eval" / "data" / "own.jsonl"
FIELDS = {"id", "request", "language", "style", "type", "files", "tasks", "links", "arguments", "expect"}
GRAPH = {"tasks", "links", "arguments"}
STYLES = {
    "plain": 60, "polite": 30, "terse": 40, "chatty": 15, "question": 40, "indirect": 10, "ungrammatical": 10,
    "list": 15, "negation": 10, "correction": 8, "backwards": 12,
}  # fmt: skip
LANGUAGES = {"en": 220, "de": 12, "fr": 12, "es": 12, "zh": 12, "ko": 12}
EXPECTED = {"plan": 220, "chat": 8, "unmapped": 8, "clarify": 12}
SHARES = {"single": 0.40, "chain": 0.40, "dag": 0.20}
TABLES = (".csv", ".tsv", ".xlsx", ".ods")

Row = Mapping[str, Any]

ROWS: list[Row] = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
PLANS = [row for row in ROWS if row["expect"] == "plan"]
GRAPHS = [(row, graph) for row in ROWS for graph in (row, *row.get("accept", ()))]


def arguments(graph: Row) -> Iterator[tuple[int, TaskSpec, str, Any]]:
    """The number and spec of a task, with the name and the value of each thing it is given."""
    for given in graph["arguments"]:
        spec = standard_tasks()[graph["tasks"][given["task"]]]
        for name, value in given.items():
            if name != "task":
                yield given["task"], spec, name, value


def several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def ports(spec: TaskSpec) -> dict[str, Port]:
    return {port.name: port for port in spec.inputs}


def shape(graph: Row) -> str:
    sources, targets = (Counter(link[end] for link in graph["links"]) for end in (0, 1))
    tasks, links = len(graph["tasks"]), len(graph["links"])
    if tasks <= 1:
        return "single" if tasks else "none"
    straight = links == tasks - 1 and max(sources.values()) == max(targets.values()) == 1
    return "chain" if straight else "dag"


def family(media_type: str) -> str:
    return media_type.partition("/")[0]


def offered(value: Any, graph: Row, files: Mapping[str, File]) -> set[int]:
    """The modalities that a literal, a file or an earlier task can stand for."""
    if isinstance(value, str):
        return {Modality.MODALITY_TEXT}
    if "file" in value:
        return {Modality.Value(f"MODALITY_{kind.name}") for kind in modalities(files[value["file"]])}
    return {port.modality for port in standard_tasks()[graph["tasks"][value["output_of"]]].outputs}


def test_ids_and_requests_are_unique() -> None:
    for field in ("id", "request"):
        repeated = [value for value, times in Counter(row[field] for row in ROWS).items() if times > 1]
        assert not repeated, field


def test_lines_have_the_fields_and_no_others() -> None:
    for row in ROWS:
        assert row.keys() - {"accept"} == FIELDS, row["id"]
        assert all(graph.keys() == GRAPH for graph in row.get("accept", ())), row["id"]
        assert row["request"].strip() == row["request"] != "", row["id"]
        assert row["id"].startswith(f"{row['language']}-")


def test_type_is_the_shape_of_the_plan() -> None:
    for row in ROWS:
        assert row["type"] == shape(row), row["id"]
        assert (row["type"] == "none") == (row["expect"] != "plan"), row["id"]


def test_media_types_of_files_match_their_names() -> None:
    for row in ROWS:
        names = [file["name"] for file in row["files"]]
        assert len(set(names)) == len(names), row["id"]
        for file in row["files"]:
            assert file.keys() == {"name", "media_type"}, row["id"]
            guessed = mimetypes.guess_type(file["name"])[0] or file["media_type"]
            assert family(guessed) == family(file["media_type"]) or file["name"].endswith(TABLES), file


def test_tasks_are_standard_and_each_has_its_arguments() -> None:
    for row, graph in GRAPHS:
        assert set(graph["tasks"]) <= standard_tasks().keys(), row["id"]
        assert [given["task"] for given in graph["arguments"]] == list(range(len(graph["tasks"]))), row["id"]


def test_arguments_fill_required_ports_and_match_the_spec() -> None:
    for row, graph in GRAPHS:
        for given in graph["arguments"]:
            spec = standard_tasks()[graph["tasks"][given["task"]]]
            known = {*ports(spec), *(parameter.name for parameter in spec.parameters)}
            required = {port.name for port in spec.inputs if port.required}
            assert required <= given.keys() - {"task"} <= known, row["id"]


def test_links_match_the_references_of_arguments() -> None:
    for row, graph in GRAPHS:
        taken = {
            (one["output_of"], task)
            for task, _, _, value in arguments(graph)
            for one in several(value)
            if isinstance(one, dict) and "output_of" in one
        }
        assert sorted(taken) == [tuple(link) for link in graph["links"]], row["id"]
        assert all(0 <= source < target for source, target in taken), row["id"]


def test_arguments_have_the_modality_of_their_port() -> None:
    for row, graph in GRAPHS:
        files = {file["name"]: File("", file["media_type"], 1, file["name"]) for file in row["files"]}
        for _, spec, name, value in arguments(graph):
            if port := ports(spec).get(name):
                assert isinstance(value, list) == port.many, row["id"]
                assert all(port.modality in offered(one, graph, files) for one in several(value)), row["id"]


def test_parameters_match_their_schemas() -> None:
    for _, graph in GRAPHS:
        for _, spec, name, value in arguments(graph):
            for parameter in spec.parameters:
                if parameter.name == name:
                    Draft202012Validator(json.loads(parameter.json_schema)).validate(value)


def test_literal_texts_are_in_the_request() -> None:
    for row in ROWS:
        words = row["request"].casefold()
        for _, spec, name, value in arguments(row):
            if name in ports(spec):
                assert all(isinstance(one, dict) or one.casefold() in words for one in several(value)), row["id"]


def test_every_standard_task_with_learned_intent_occurs_at_least_twice() -> None:
    asked = Counter(task for row in ROWS for task in set(row["tasks"]))
    assert {task for task in standard_tasks() if asked[task] < 2} == TASKS_OF_RULES


@pytest.mark.parametrize(
    ("field", "minima"),
    [("style", STYLES), ("language", LANGUAGES), ("expect", EXPECTED)],
    ids=["style", "language", "expect"],
)
def test_every_kind_of_request_has_its_minimum(field: str, minima: Mapping[str, int]) -> None:
    counts = Counter(row[field] for row in ROWS)
    assert counts.keys() == minima.keys()
    assert not {kind: counts[kind] for kind, least in minima.items() if counts[kind] < least}


def test_each_foreign_language_has_plans_of_one_task_and_of_several() -> None:
    for language in LANGUAGES.keys() - {"en"}:
        plans = Counter(row["type"] == "single" for row in PLANS if row["language"] == language)
        assert plans.total() >= 12, language
        assert min(plans[True], plans[False]) >= 5, language


def test_shapes_have_a_ratio_of_about_four_to_four_to_two() -> None:
    counts = Counter(row["type"] for row in PLANS)
    assert {kind: counts[kind] / len(PLANS) for kind in SHARES} == pytest.approx(SHARES, abs=0.03)
