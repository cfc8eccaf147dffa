"""How language models write plans: each dialect gives the same plan, after as many calls as it has answers."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from protos.hugginggpt.v1 import artifact_pb2
from tests.fakes import ScriptedReply, TextReply, TruncatedReply
from tests.service.test_planner_llm import (
    ALOUD,
    COMPLETE,
    MOOD,
    OCR,
    SIGN,
    events,
    plan,
    plan_request,
    scripted,
    written,
)

TASKS: Sequence[dict[str, Any]] = (OCR, ALOUD, MOOD)
PLAN = plan(*TASKS)
CUT = PLAN[: PLAN.index('"id": 2')]


def changed(*changes: dict[str, Any], without: Sequence[str] = ()) -> str:
    """The plan with other fields in each task."""
    tasks = [{**task, **change} for task, change in zip(TASKS, changes, strict=True)]
    return plan(*[{key: value for key, value in task.items() if key not in without} for task in tasks])


def args(image: Any, text: Any) -> str:
    """The plan with other values for the ports."""
    return changed({"args": {"image": image}}, {"args": {"text": text}}, {"args": {"text": text}})


def renamed(key: str, to: str) -> str:
    return PLAN.replace(f'"{key}":', f'"{to}":')


class Dialect(NamedTuple):
    """A way to write the plan: the answers of the model, one per call."""

    name: str
    answers: Sequence[ScriptedReply]


DIALECTS = [
    Dialect(name, [TextReply(text)])
    for name, text in {
        "well-behaved": PLAN,
        "indented": json.dumps(json.loads(PLAN), indent=2),
        "a bare list": json.dumps(TASKS),
        "one object per line": "\n".join(map(json.dumps, TASKS)),
        # text before and after
        "chatty": f"Sure! Here is the plan:\n\n{PLAN}\n\nLet me know if you'd like {{anything}} else.",
        "fenced": f"```json\n{PLAN}\n```\nEach task feeds the next.",
        "reasoning first": f'<think>Maybe {{"task": "telepathy"}}? No.</think>\n{PLAN}',
        # not quite JSON
        "Python literals": str(json.loads(PLAN)),
        "trailing commas": PLAN.replace("}]", ",},]"),
        "comments": PLAN.replace(", {", ", // next\n{"),
        "typographic quotes": PLAN.replace('"', "“").replace("“,", "”,"),
        "a missing bracket": PLAN.replace("}}, {", "}, {").replace('say it"}, {', 'say it", {'),
        # wrong names
        "short task names": changed({"task": "ocr"}, {"task": "tts"}, {"task": "sentiment-analysis"}),
        "spelt task names": changed(
            {"task": "Image to Text"}, {"task": "TextToSpeech"}, {"task": "text_classification"}
        ),
        "synonyms": changed(
            {"task": "optical-character-recognition"},
            {"task": "speech-synthesis"},
            {"task": "sentiment-classification"},
        ),
        "file names": args("sign.png", "<text>-0"),
        "other port names": changed(
            {"args": {"img": "<file1>"}}, {"args": {"input": "<text>-0"}}, {"args": {"content": "<text>-0"}}
        ),
        "function calls": renamed("task", "name").replace('"args":', '"arguments":'),
        "arguments as text": plan(
            *[{"name": task["task"], "arguments": json.dumps(task["args"]), "id": task["id"]} for task in TASKS]
        ),
        "arguments next to the task": plan(
            *[{key: value for key, value in {**task, **task["args"]}.items() if key != "args"} for task in TASKS]
        ),
        # references
        "JARVIS references": args("<file1>", "<GENERATED>-0"),
        "references in brackets": args("<file1>", "<text-0>"),
        "template references": args("{{file1}}", "{{task_0.text}}"),
        "dollar references": args("file1", "$0"),
        "dotted references": args("file1", "task_0.text"),
        "objects as references": args({"input": "file1"}, {"task_id": 0, "output": "text"}),
        # missing dependencies
        "no dependencies": changed({}, {}, {}, without=["dep"]),
        "empty dependencies": changed({"dep": []}, {"dep": []}, {"dep": []}),
        "dependencies without references": changed({"args": {}}, {"args": {}}, {"args": {}}),
        "no ids": changed({}, {}, {}, without=["id", "dep"]),
        "ids as text": changed({"id": "task-0"}, {"id": "task-1", "dep": ["task-0"]}, {"id": "2", "dep": "0"}),
        "dependents first": plan(ALOUD, MOOD, OCR),
        "every task twice": plan(OCR, ALOUD, OCR, MOOD, ALOUD),
    }.items()
] + [
    Dialect("cut off at its limit", [TextReply(CUT, finish="length"), TextReply(plan(MOOD))]),
    Dialect(
        "a wrong task, then right", [TextReply(PLAN.replace("text-classification", "telepathy")), TextReply(plan(MOOD))]
    ),
    Dialect("cut off by the connection", [TruncatedReply(CUT)]),  # the embedded planner adds what is missing
    Dialect("no plan at all", [TextReply("I cannot do that.")]),  # the embedded planner plans
]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_dialect_gives_the_plan(dialect: Dialect) -> None:
    async with scripted(*dialect.answers) as (stub, llm):
        steps = written(await events(stub, plan_request()))
        assert sorted(task for task, _ in steps) == sorted(task for task, _ in COMPLETE)
        first = 1 + [task for task, _ in steps].index("image-to-text")
        assert dict(steps)["image-to-text"] == {"image": "file1"}
        assert dict(steps)["text-to-speech"] == {"text": str(first)}
        assert dict(steps)["text-classification"] == {"text": str(first)}
        assert len(llm.requests) == len(dialect.answers)


PARAMETERS = {
    "numbers": ({"speed": 1.5}, {"speed": 1.5}),
    "numbers as text": ({"speed": "1.5"}, {"speed": 1.5}),
    "nulls": ({"speed": None, "voice": ""}, {}),
    "other parameter names": ({"lang": "de"}, {"language": "de"}),
    "parameters in an object of their own": ({"parameters": {"speed": 2}}, {"speed": 2}),
}


@pytest.mark.parametrize(("given", "expected"), PARAMETERS.values(), ids=PARAMETERS)
async def test_dialect_gives_the_parameters(given: dict[str, Any], expected: dict[str, Any]) -> None:
    aloud = TASKS[1]
    speech = {**aloud, **given} if "parameters" in given else {**aloud, "args": {**aloud["args"], **given}}
    async with scripted(TextReply(plan(OCR, speech))) as (stub, llm):
        steps = await events(stub, plan_request("Read the text in this image aloud"))
        [task] = [event.task for event in steps if event.task.task == "text-to-speech"]
        assert json.loads(task.parameters_json or "{}") == expected
        assert len(llm.requests) == 1


LISTS = {
    "a list": ["<file1>", "<file2>"],
    "references in one text": "<file1>, <file2>",
}


@pytest.mark.parametrize("written_list", LISTS.values(), ids=LISTS)
async def test_several_values_for_a_port_that_takes_one_are_several_tasks(written_list: object) -> None:
    second = artifact_pb2.NamedValue()
    second.CopyFrom(SIGN)
    second.name, second.value.artifact.sha256, second.value.artifact.name = "file2", "cd", "door.png"
    async with scripted(TextReply(plan({**OCR, "args": {"image": written_list}}))) as (stub, llm):
        steps = written(await events(stub, plan_request("Read both", inputs=[SIGN, second])))
        assert steps == [("image-to-text", {"image": "file1"}), ("image-to-text", {"image": "file2"})]
        assert len(llm.requests) == 1
