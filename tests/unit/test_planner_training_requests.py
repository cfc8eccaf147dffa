"""The requests the planner without an LLM learns from are whole, consistent, and none that it is tested on."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from services.planner.catalog import standard_specs
from services.planner.plan import File, Modality, Spec, modalities

HOUSE = Path(__file__).parents[2]
UNSEEN = HOUSE / "tests" / "eval" / "data" / "own.jsonl"
SPECS = standard_specs()
FIELDS = ["id", "request", "type", "files", "tasks", "links", "arguments", "expect"]
LEAST = 5
"""How often each task is asked for, at least."""
SHARES = {"single": 0.45, "chain": 0.35, "dag": 0.20}

Row = Mapping[str, Any]


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


ROWS = rows(HOUSE / "tests" / "eval" / "data" / "training.jsonl")
PLANS = [row for row in ROWS if row["expect"] == "plan"]


def given(row: Row) -> Iterator[tuple[int, Spec, str, Any]]:
    """The number and spec of a task, with the name and each value of what it is given."""
    for number, (task, arguments) in enumerate(zip(row["tasks"], row["arguments"], strict=True)):
        assert arguments["task"] == number, row["id"]
        spec = SPECS[task]
        for name, value in list(arguments.items())[1:]:
            several = value if isinstance(value, list) and name in inputs(spec) else [value]
            yield from ((number, spec, name, one) for one in several)


def inputs(spec: Spec) -> dict[str, Modality]:
    return {port.name: port.modality for port in spec.inputs}


def offered(value: Any, row: Row) -> set[Modality]:
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


def words(request: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", request.casefold()))


def test_ids_and_the_words_of_requests_are_unique() -> None:
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert [some for some, times in Counter(words(row["request"]) for row in ROWS).items() if times > 1] == []


def test_no_request_is_one_of_the_unseen_ones() -> None:
    unseen = {words(row["request"]) for row in rows(UNSEEN)}
    assert [row["id"] for row in ROWS if words(row["request"]) in unseen] == []


def test_every_line_has_the_fields_and_says_the_shape_of_its_plan() -> None:
    for row in ROWS:
        assert list(row) == FIELDS, row["id"]
        assert row["type"] == shape(row), row["id"]
        assert row["expect"] in {"plan", "clarify", "unmapped", "chat"}, row["id"]
        assert (row["type"] == "none") == (row["expect"] != "plan"), row["id"]
        assert row["request"].strip() == row["request"] != "", row["id"]


def test_tasks_have_all_they_need_and_nothing_that_is_not_theirs() -> None:
    for row in ROWS:
        for task, arguments in zip(row["tasks"], row["arguments"], strict=True):
            spec = SPECS[task]
            required = {port.name for port in spec.inputs if port.required}
            known = {*inputs(spec), *(parameter.name for parameter in spec.parameters)}
            assert required <= arguments.keys() - {"task"} <= known, row["id"]


def test_links_are_what_tasks_take_from_earlier_ones() -> None:
    for row in ROWS:
        taken = {
            (value["output_of"], number)
            for number, _, _, value in given(row)
            if isinstance(value, dict) and "output_of" in value
        }
        assert sorted(taken) == [tuple(link) for link in row["links"]], row["id"]
        assert all(0 <= source < target for source, target in taken), row["id"]


def test_each_input_is_given_something_of_its_kind() -> None:
    for row in ROWS:
        for _, spec, name, value in given(row):
            if name in inputs(spec):
                assert inputs(spec)[name] in offered(value, row), (row["id"], name)


def test_texts_that_tasks_are_given_stand_in_the_request() -> None:
    for row in ROWS:
        for _, spec, name, value in given(row):
            if name in inputs(spec) and isinstance(value, str):
                assert value.casefold() in row["request"].casefold(), row["id"]


def test_parameters_are_what_their_schemas_allow() -> None:
    for row in ROWS:
        for _, spec, name, value in given(row):
            for parameter in spec.parameters:
                if parameter.name == name:
                    Draft202012Validator(json.loads(parameter.json_schema)).validate(value)


def test_every_standard_task_is_asked_for_often_enough() -> None:
    asked = Counter(task for row in ROWS for task in set(row["tasks"]))
    assert {task: asked[task] for task in SPECS if asked[task] < LEAST} == {}


def test_single_tasks_chains_and_graphs_are_balanced_and_some_become_no_plan() -> None:
    counts = Counter(row["type"] for row in PLANS)
    assert {kind: counts[kind] / len(PLANS) for kind in SHARES} == pytest.approx(SHARES, abs=0.03)
    others = Counter(row["expect"] for row in ROWS if row["expect"] != "plan")
    assert min(others[kind] for kind in ("clarify", "unmapped", "chat")) >= 2 * LEAST
