"""Training requests of the embedded planner: complete, consistent and disjoint from the evaluation set."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from services.planner.plan import File, modalities
from services.planner.task_spec import Modality, Spec, standard_specs
from tests.eval.training.examples import TASKS_OF_RULES

ROOT = Path(__file__).parents[2]
UNSEEN = ROOT / "tests" / "eval" / "data" / "own.jsonl"
SPECS = standard_specs()
FIELDS = ["id", "request", "type", "files", "tasks", "links", "arguments", "expect"]
MIN_REQUESTS = 5
"""Minimum number of requests for each task."""
SHARES = {"single": 0.45, "chain": 0.35, "dag": 0.20}

Row = Mapping[str, Any]


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


ROWS = rows(ROOT / "tests" / "eval" / "data" / "training.jsonl")
PLANS = [row for row in ROWS if row["expect"] == "plan"]


def arguments_of(row: Row) -> Iterator[tuple[int, Spec, str, Any]]:
    """Index and spec of each task, with the name and value of each argument."""
    for number, (task, arguments) in enumerate(zip(row["tasks"], row["arguments"], strict=True)):
        assert arguments["task"] == number, row["id"]
        spec = SPECS[task]
        for name, value in list(arguments.items())[1:]:
            values = value if isinstance(value, list) and name in inputs(spec) else [value]
            yield from ((number, spec, name, item) for item in values)


def inputs(spec: Spec) -> dict[str, Modality]:
    return {port.name: port.modality for port in spec.inputs}


def modalities_of(value: Any, row: Row) -> set[Modality]:
    """The modalities that a literal, a file or an earlier task can stand for."""
    if isinstance(value, str):
        return {Modality.TEXT}
    if "output_of" in value:
        return {port.modality for port in SPECS[row["tasks"][value["output_of"]]].outputs}
    types = {file["name"]: file["media_type"] for file in row["files"]}
    return set(modalities(File("", types[value["file"]], 1, value["file"])))


def shape(row: Row) -> str:
    ends = [Counter(link[end] for link in row["links"]).values() for end in (0, 1)]
    tasks, links = len(row["tasks"]), len(row["links"])
    if tasks <= 1:
        return "single" if tasks else "none"
    return "chain" if links == tasks - 1 and max(map(max, ends)) == 1 else "dag"


def word_tuple(request: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", request.casefold()))


def test_ids_and_requests_are_unique() -> None:
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert [text for text, count in Counter(word_tuple(row["request"]) for row in ROWS).items() if count > 1] == []


def test_no_request_is_in_the_evaluation_set() -> None:
    unseen = {word_tuple(row["request"]) for row in rows(UNSEEN)}
    assert [row["id"] for row in ROWS if word_tuple(row["request"]) in unseen] == []


def test_every_line_has_the_fields_and_the_shape_of_its_plan() -> None:
    for row in ROWS:
        assert list(row) == FIELDS, row["id"]
        assert row["type"] == shape(row), row["id"]
        assert row["expect"] in {"plan", "clarify", "unmapped", "chat"}, row["id"]
        assert (row["type"] == "none") == (row["expect"] != "plan"), row["id"]
        assert row["request"].strip() == row["request"] != "", row["id"]


def test_tasks_have_required_arguments_and_no_unknown_ones() -> None:
    for row in ROWS:
        for task, arguments in zip(row["tasks"], row["arguments"], strict=True):
            spec = SPECS[task]
            required = {port.name for port in spec.inputs if port.required}
            known = {*inputs(spec), *(parameter.name for parameter in spec.parameters)}
            assert required <= arguments.keys() - {"task"} <= known, row["id"]


def test_links_match_the_references_in_arguments() -> None:
    for row in ROWS:
        references = {
            (value["output_of"], number)
            for number, _, _, value in arguments_of(row)
            if isinstance(value, dict) and "output_of" in value
        }
        assert sorted(references) == [tuple(link) for link in row["links"]], row["id"]
        assert all(0 <= source < target for source, target in references), row["id"]


def test_inputs_have_the_modality_of_their_port() -> None:
    for row in ROWS:
        for _, spec, name, value in arguments_of(row):
            if name in inputs(spec):
                assert inputs(spec)[name] in modalities_of(value, row), (row["id"], name)


def test_text_arguments_occur_in_the_request() -> None:
    for row in ROWS:
        for _, spec, name, value in arguments_of(row):
            if name in inputs(spec) and isinstance(value, str):
                assert value.casefold() in row["request"].casefold(), row["id"]


def test_parameters_satisfy_their_schemas() -> None:
    for row in ROWS:
        for _, spec, name, value in arguments_of(row):
            for parameter in spec.parameters:
                if parameter.name == name:
                    Draft202012Validator(json.loads(parameter.json_schema)).validate(value)


def test_every_standard_task_with_learned_intent_has_enough_requests() -> None:
    requests = Counter(task for row in ROWS for task in set(row["tasks"]))
    assert {task for task in SPECS if requests[task] < MIN_REQUESTS} == TASKS_OF_RULES


def test_plan_shapes_are_balanced_and_some_requests_have_no_plan() -> None:
    counts = Counter(row["type"] for row in PLANS)
    assert {kind: counts[kind] / len(PLANS) for kind in SHARES} == pytest.approx(SHARES, abs=0.03)
    other_kinds = Counter(row["expect"] for row in ROWS if row["expect"] != "plan")
    assert min(other_kinds[kind] for kind in ("clarify", "unmapped", "chat")) >= 2 * MIN_REQUESTS
