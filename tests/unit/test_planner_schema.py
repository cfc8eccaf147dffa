"""The JSON schema of a plan: every task with its own arguments."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from services.planner.llm.plan_format import plan_schema
from services.planner.task_spec import Modality, Parameter, Port, Spec
from tests.support.plans import STANDARD

SPEECH = Spec(
    "text-to-speech",
    inputs=(Port("text", Modality.TEXT), Port("voice", Modality.AUDIO, required=False)),
    parameters=(Parameter("speed", '{"type":"number","minimum":0.5,"default":1}'), Parameter("odd", "no JSON")),
)
SIMILARITY = Spec(
    "sentence-similarity", inputs=(Port("text", Modality.TEXT), Port("sentences", Modality.TEXT, many=True))
)


def task(name: str = "text-to-speech", **arguments: Any) -> dict[str, Any]:
    return {"task": name, "id": 0, "dep": [-1], "args": arguments, "source": "say it"}


def is_valid(entry: object, *specs: Spec) -> bool:
    schema = plan_schema(specs or (SPEECH, SIMILARITY)).json_schema
    return bool(Draft202012Validator(schema).is_valid({"tasks": [entry]}))


@pytest.mark.parametrize(
    "entry",
    [
        task(text="hello"),
        task(text="<text>-0", voice="<file1>", speed=1.5),
        task(text=["one", "two"]),
        task("sentence-similarity", text="a", sentences=["b", "<text>-0"]),
        {"note": "clarify", "text": "Which file?", "source": "it"},
    ],
)
def test_schema_accepts_arguments_of_the_task(entry: object) -> None:
    assert is_valid(entry)


@pytest.mark.parametrize(
    "entry",
    [
        task(),
        task(txt="hello"),
        task(text="hello", sentences=["b"]),
        task(text="hello", speed="fast"),
        task("sentence-similarity", text="a", sentences="b"),
        task("telepathy", text="hello"),
        {"note": "complaint", "text": "no", "source": ""},
    ],
)
def test_schema_rejects_arguments_of_other_tasks(entry: object) -> None:
    assert not is_valid(entry)


def test_schema_omits_keywords_that_endpoints_may_not_know() -> None:
    items = plan_schema([SPEECH]).json_schema["properties"]["tasks"]["items"]
    arguments = items["anyOf"][0]["properties"]["args"]
    assert arguments["properties"]["speed"] == {"type": "number"}
    assert arguments["properties"]["odd"] == {}


def test_schema_of_all_standard_tasks_is_valid() -> None:
    Draft202012Validator.check_schema(dict(plan_schema(list(STANDARD.values())).json_schema))
