"""How language models write plans: each dialect gives the same plan, after as many calls as it has answers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from protos.hugginggpt.v1 import artifact_pb2
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_EMBEDDED, CONTROLLER_LLM, Controller
from services.planner.llm.json_stream import PlanReader
from services.planner.llm.normalization import match_task
from services.planner.llm.repair import PlanRepairer
from services.planner.plan import Value
from tests.fakes import ScriptedReply, TextReply, TruncatedReply
from tests.service.test_planner_llm import (
    ALOUD,
    COMPLETE,
    MOOD,
    OCR,
    SIGN,
    decision_of,
    events,
    plan,
    plan_request,
    scripted,
    written,
)
from tests.support.plans import STANDARD, file, notation

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
    controller: "Controller.ValueType" = CONTROLLER_LLM


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
        "reasoning first": f'<think>{{"task": "telepathy"}}? </b> No: <text> -> <audio>.</think>\n{PLAN}',
        "thinking first": f"<thinking>{{One}} or two?</thinking>\n{PLAN}",
        "in a tag": f"<plan>\n{PLAN}\n</plan>",
        "under another key": PLAN.replace('"tasks"', '"plan"', 1),
        "steps of a plan": json.dumps({"plan": {"goal": "read the sign", "steps": TASKS}}),
        # not quite JSON
        "Python literals": str(json.loads(PLAN)),
        "trailing commas": PLAN.replace("}]", ",},]"),
        "comments between tasks": PLAN.replace(", {", ", // next, {aloud}\n{"),
        "comments after texts": PLAN.replace('"}', '" // copied, {x}\n}'),
        "a comment after a number": changed({}, {"args": {"text": "<text>-0", "speed": 1.5}}, {}).replace(
            "1.5", "1.5 // faster\n"
        ),
        "keys without quotes": PLAN.replace('"task":', "task:").replace('"id":', "id:"),
        "references without quotes": PLAN.replace('"<', "<").replace('>-0"', ">-0").replace('1>"', "1>"),
        "quotes that are not escaped": PLAN.replace("Read the text", 'Read "Pull" or "Push" please'),
        "typographic quotes": PLAN.replace('"', "“").replace("“,", "”,"),
        "a missing bracket": PLAN.replace('"}, {', '", {', 1),
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
        "other port names": changed(
            {"args": {"img": "<file1>"}}, {"args": {"input": "<text>-0"}}, {"args": {"content": "<text>-0"}}
        ),
        "tools": renamed("task", "tool").replace('"args":', '"arguments":'),
        "inputs": renamed("args", "inputs"),
        "function calls": renamed("task", "name").replace('"args":', '"arguments":'),
        "arguments as text": plan(
            *[{"name": task["task"], "arguments": json.dumps(task["args"]), "id": task["id"]} for task in TASKS]
        ),
        "arguments next to the task": plan(
            *[
                {"thought": "so", "reason": "why", **{key: task[key] for key in task if key != "args"}, **task["args"]}
                for task in TASKS
            ]
        ),
        "the file as an output of its own task": args("<image>-0", "<text>-0"),
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
    Dialect(
        "a reference within a sentence",
        [
            TextReply(changed({}, {}, {"args": {"text": "Mood of <text>-0?"}})),
            TextReply(plan(MOOD)),
        ],
    ),
    Dialect(
        "cut off by the connection", [TruncatedReply(CUT)], CONTROLLER_EMBEDDED
    ),  # the embedded planner adds what is missing
    Dialect("no plan at all", [TextReply("I cannot do that.")], CONTROLLER_EMBEDDED),  # the embedded planner plans
]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_dialect_gives_the_plan(dialect: Dialect) -> None:
    async with scripted(*dialect.answers) as (stub, llm):
        steps = await events(stub, plan_request())
        tasks = written(steps)
        assert sorted(task for task, _ in tasks) == sorted(task for task, _ in COMPLETE)
        first = 1 + [task for task, _ in tasks].index("image-to-text")
        assert dict(tasks)["image-to-text"] == {"image": "file1"}
        assert dict(tasks)["text-to-speech"] == {"text": str(first)}
        assert dict(tasks)["text-classification"] == {"text": str(first)}
        assert decision_of(steps).controller == dialect.controller
        assert len(llm.requests) == len(dialect.answers)


def test_dialects_differ() -> None:
    assert len({str(dialect.answers) for dialect in DIALECTS}) == len(DIALECTS)


# ---------------------------------------------------------------- arguments and parameters of all standard tasks

INPUTS: Mapping[str, Value] = {"file1": file("sign.png"), "file2": file("talk.wav"), "file3": file("door.png")}
SEGMENTS = {"task": "image-segmentation", "id": 0, "args": {"image": "<file1>"}}
HEARD = {"task": "automatic-speech-recognition", "id": 1, "args": {"audio": "<file2>"}}

DEPENDENCIES: Sequence[tuple[str, object]] = [
    ("dep", [1]),
    ("depends_on", 1),
    ("dependencies", ["task-1"]),
    ("dep", "1"),
]
SUMMARIZED = ["image-to-text(image=file1)", "automatic-speech-recognition(audio=file2)", "summarization(text=2.text)"]

TASK_NAMES = {
    "ASR": "automatic-speech-recognition",
    "speech recognition": "automatic-speech-recognition",
    "speech-to-text": "automatic-speech-recognition",
    "transcription": "automatic-speech-recognition",
    "TTS": "text-to-speech",
    "speech-synthesis": "text-to-speech",
    "OCR": "image-to-text",
    "optical-character-recognition": "image-to-text",
    "image captioning": "image-to-text",
    "VQA": "visual-question-answering",
    "NER": "token-classification",
    "named-entity-recognition": "token-classification",
    "sentiment-analysis": "text-classification",
    "sentiment-classification": "text-classification",
    "text-summarization": "summarization",
    "image-generation": "text-to-image",
    "image-editing": "image-to-image",
    "super-resolution": "image-super-resolution",
    "image-inpainting": "inpainting",
    "pose-estimation": "keypoint-detection",
    "Text2Text_Generation": "text2text-generation",
}


@pytest.mark.parametrize(("name", "task"), TASK_NAMES.items())
def test_common_name_of_a_task_is_known(name: str, task: str) -> None:
    assert match_task(name, STANDARD) == task


def call(task: str, arguments: object, **fields: object) -> dict[str, object]:
    return {"task": task, "id": 2, "args": arguments, **fields}


ARGUMENTS: Mapping[str, tuple[Sequence[object], Sequence[str]]] = {
    "a file": ([call("image-to-text", {"file": "<file1>"})], ["image-to-text(image=file1)"]),
    "task_id": (
        [
            {"task": "image-to-text", "task_id": 3, "args": {"image": "<file1>"}},
            {"task": "automatic-speech-recognition", "task_id": 4, "args": {"audio": "<file2>"}},
            {"task": "summarization", "task_id": 5, "text": "<text>-4"},
        ],
        SUMMARIZED,
    ),
    "a plural": ([call("image-to-text", {"images": ["<file1>"]})], ["image-to-text(image=file1)"]),
    "a number for a text": ([call("text-to-speech", {"text": 42})], ["text-to-speech(text='42')"]),
    "a text by another name": (
        [call("image-to-image", {"image": "<file1>", "style": "as a sketch"})],
        ["image-to-image(image=file1, instruction='as a sketch')"],
    ),
    "a prompt": ([call("text-to-image", {"prompt": "a cat"})], ["text-to-image(text='a cat')"]),
    "a prompt next to the text": (
        [call("text-to-image", {"text": "a cat", "steps": "20"})],
        ["text-to-image(text='a cat'; num_inference_steps=20)"],
    ),
    "a query": (
        [call("question-answering", {"query": "who?", "text": "Bob did."})],
        ["question-answering(question='who?', context='Bob did.')"],
    ),
    "numbered texts": (
        [call("sentence-similarity", {"text1": "a", "text2": "b"})],
        ["sentence-similarity(text='a', sentences=['b'])"],
    ),
    "names of diffusers": (
        [SEGMENTS, call("inpainting", {"image": "<file1>", "mask_image": "<mask>-0", "prompt": "a cat"})],
        ["image-segmentation(image=file1)", "inpainting(image=file1, mask=1.mask, text='a cat')"],
    ),
    "an output by its modality": (
        [SEGMENTS, call("inpainting", {"image": "<file1>", "mask": "<image>-0", "text": "a cat"})],
        ["image-segmentation(image=file1)", "inpainting(image=file1, mask=1.mask, text='a cat')"],
    ),
    "an output of any modality by another name": (
        [SEGMENTS, call("visual-question-answering", {"img": "<GENERATED>-0", "text": "who?"})],
        ["image-segmentation(image=file1)", "visual-question-answering(image=1.image, question='who?')"],
    ),
    **{
        f"no reference but {key} {value}": ([OCR, HEARD, call("summarization", {}, **{key: value})], SUMMARIZED)
        for key, value in DEPENDENCIES
    },
    "dependencies for a list": (
        [OCR, HEARD, call("sentence-similarity", {"text": "x"}, dep=[0, 1])],
        [
            "image-to-text(image=file1)",
            "automatic-speech-recognition(audio=file2)",
            "sentence-similarity(text='x', sentences=[1.text, 2.text])",
        ],
    ),
    "arguments without names": (
        [call("visual-question-answering", ["<file1>", "who?"])],
        ["visual-question-answering(image=file1, question='who?')"],
    ),
    "one argument without a name": ([call("image-to-text", "<file1>")], ["image-to-text(image=file1)"]),
    "arguments with names and values": (
        [call("image-to-text", [{"name": "image", "value": "<file1>"}])],
        ["image-to-text(image=file1)"],
    ),
    "labels as text": (
        [call("zero-shot-classification", {"text": "x", "candidate_labels": "cat, dog", "multi_label": "true"})],
        ["zero-shot-classification(text='x'; candidate_labels=['cat', 'dog'], multi_label=True)"],
    ),
    "classes": (
        [call("zero-shot-image-classification", {"image": "<file1>", "classes": ["cat"]})],
        ["zero-shot-image-classification(image=file1; candidate_labels=['cat'])"],
    ),
    "labels": (
        [call("zero-shot-image-classification", {"image": "<file1>", "labels": ["cat"]})],
        ["zero-shot-image-classification(image=file1; candidate_labels=['cat'])"],
    ),
    "short languages": (
        [call("translation", {"text": "x", "src_lang": "en", "tgt_lang": "de"})],
        ["translation(text='x'; source_language=en, target_language=de)"],
    ),
}


@pytest.mark.parametrize(("tasks", "expected"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_dialect_gives_the_arguments(tasks: Sequence[object], expected: Sequence[str]) -> None:
    assert assembled(json.dumps({"tasks": tasks})) == list(expected)


@pytest.mark.parametrize(
    ("string", "text"),
    [
        (r'"Gr\u00fc\u00dfe \ud83d\ude00"', "Grüße 😀"),
        (r'"one\ntwo \"three\""', 'one\ntwo "three"'),
        (r'"it\'s"', "it's"),
        ('"one\ntwo"', "one\ntwo"),
        ("'it's'", "it's"),
    ],
    ids=["escaped characters", "escaped quotes", "an escaped apostrophe", "a line break", "an apostrophe"],
)
def test_dialect_gives_the_text(string: str, text: str) -> None:
    answer = f'{{"tasks": [{{"task": "text-to-speech", "id": 0, "args": {{"text": {string}, "voice": None}}}}]}}'
    assert assembled(answer) == [f"text-to-speech(text={text!r})"]


def assembled(answer: str) -> list[str]:
    """The plan of an answer that needs no second call."""
    reader, repairer = PlanReader(), PlanRepairer(STANDARD, INPUTS)
    tasks = [task for raw in reader.feed(answer) for task in repairer.add(raw)]
    tasks += repairer.close()
    assert repairer.faults == []
    assert not reader.is_incomplete
    return notation(tasks)


REFERENCES = [
    "<text>-1",
    "<GENERATED>-1",
    "<text-1>",
    "<node-1>",
    "text-1",
    "$1",
    "task_1.text",
    "{{task_1.text}}",
    "{{ task_1.text }}",
    "${task_1.text}",
    {"task_id": 1, "output": "text"},
    {"task": 1},
]


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_dialect_gives_the_output_of_a_task(reference: object) -> None:
    answer = {"tasks": [OCR, HEARD, call("summarization", {"text": reference})]}
    assert assembled(json.dumps(answer)) == SUMMARIZED


@pytest.mark.parametrize("name", ["<file3>", "file3", "door.png", "/mnt/data/door.png", {"input": "file3"}], ids=str)
def test_dialect_gives_the_file(name: object) -> None:
    assert assembled(json.dumps([call("image-to-text", {"image": name})])) == ["image-to-text(image=file3)"]


NOTES = {
    "in the list": {"tasks": [OCR, {"note": "Unmapped", "text": "No task sends mail.", "source": "mail it"}]},
    "in a list of their own": {"tasks": [OCR], "notes": [{"note": "unmapped", "text": "No task sends mail."}]},
}


@pytest.mark.parametrize("answer", NOTES.values(), ids=NOTES)
async def test_dialect_gives_the_note(answer: object) -> None:
    async with scripted(TextReply(json.dumps(answer))) as (stub, llm):
        steps = await events(stub, plan_request("Read it and mail it"))
        assert written(steps) == COMPLETE[:1]
        assert [event.note.text for event in steps if event.HasField("note")] == ["No task sends mail."]
        assert len(llm.requests) == 1


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
    "references joined by a word": "<file1> and <file2>",
}


@pytest.mark.parametrize("written_list", LISTS.values(), ids=LISTS)
async def test_several_values_for_a_port_that_takes_one_are_several_tasks(written_list: object) -> None:
    await expect_two_tasks({"image": written_list})


async def test_numbered_arguments_of_a_port_that_takes_one_are_several_tasks() -> None:
    await expect_two_tasks({"image1": "<file1>", "image2": "<file2>"})


async def expect_two_tasks(arguments: dict[str, object]) -> None:
    second = artifact_pb2.NamedValue()
    second.CopyFrom(SIGN)
    second.name, second.value.artifact.sha256, second.value.artifact.name = "file2", "cd", "door.png"
    async with scripted(TextReply(plan({**OCR, "args": arguments}))) as (stub, llm):
        steps = written(await events(stub, plan_request("Read both", inputs=[SIGN, second])))
        assert steps == [("image-to-text", {"image": "file1"}), ("image-to-text", {"image": "file2"})]
        assert len(llm.requests) == 1
