"""Bad input over HTTP and gRPC: both APIs report the same error, and the services stay ready."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
import pytest
from grpc import StatusCode

from tests.support.corrupted_files import DATA, corrupted_files
from tests.system.conftest import LocalStack
from tests.system.endpoints import ApiError, Endpoint, GrpcEndpoint, HttpEndpoint, Run, Spec

pytestmark = pytest.mark.slow

SHA = "ab" * 32
FILES = {"sign.png": (DATA / "sign.png").read_bytes(), **corrupted_files()}


@dataclass(frozen=True)
class Refused:
    """Expected error before a run exists; `status` contains the HTTP and the gRPC status."""

    status: tuple[int, StatusCode]
    code: str
    message: str


@dataclass(frozen=True)
class Ended:
    """Expected end of a run, and the number of its completed tasks."""

    state: str
    code: str
    message: str
    done: int = 0


def speech(task_id: int = 1, *, text: Any = "hello", **more: Any) -> dict[str, Any]:
    return {"id": task_id, "task": "text-to-speech", "args": {"text": text}, **more}


def summary(task_id: int, *, text: Any = "hello") -> dict[str, Any]:
    return {"id": task_id, "task": "summarization", "args": {"text": text}}


def plan(*tasks: Mapping[str, Any]) -> Spec:
    return {"plan": list(tasks)}


def output(task_id: int, name: str = "text") -> dict[str, Any]:
    return {"task_id": task_id, "output": name}


READ = {"request": "Read the text in this image"}
BAD = (400, StatusCode.INVALID_ARGUMENT)
MISSING = (404, StatusCode.NOT_FOUND)

CASES: Mapping[str, tuple[Spec, Sequence[str], Refused | Ended]] = {
    "nothing": ({}, [], Refused(BAD, "EMPTY", "the request is empty")),
    "only spaces": ({"request": " \n\t"}, [], Refused(BAD, "EMPTY", "the request is empty")),
    "a file that is not what its name says": (
        READ,
        ["text.png"],
        Refused(BAD, "FILE_TYPE", "cannot accept text.png: its name means image/png, but its content is text/plain"),
    ),
    "an empty picture": (READ, ["empty.png"], Refused(BAD, "EMPTY_FILE", "empty.png is empty")),
    "an empty text": ({"request": "Summarise this"}, ["empty.txt"], Refused(BAD, "EMPTY_FILE", "empty.txt is empty")),
    "a text that is not UTF-8": (
        {"request": "Summarise this"},
        ["latin.txt"],
        Refused(BAD, "NOT_UTF8", "cannot accept latin.txt: its name means text, but its content is not UTF-8"),
    ),
    "a text that ceases to be UTF-8": (
        {"request": "Summarise this"},
        ["invalid_at_end.txt"],
        Refused(BAD, "NOT_UTF8", "cannot accept invalid_at_end.txt: its name means text, but its content is not UTF-8"),
    ),
    "a truncated picture": (
        {"request": "Read the text in this image aloud"},
        ["truncated.png"],
        Ended("failed", "INVALID", "cannot decode truncated.png: the image data is corrupted"),
    ),
    "a truncated picture and a valid one": (
        {"request": "Read the text in each of these images aloud"},
        ["sign.png", "truncated.png"],
        Ended("incomplete", "INVALID", "cannot decode truncated.png: the image data is corrupted", done=2),
    ),
    "a truncated PDF": (
        {"request": "Summarise this letter"},
        ["truncated.pdf"],
        Ended("failed", "INVALID", "cannot read truncated.pdf: it is not a valid PDF"),
    ),
    "an image bomb": (READ, ["bomb.png"], Ended("failed", "INVALID", "bomb.png has too many pixels")),
    "audio of zero length": (
        {"request": "Transcribe this recording"},
        ["silent.wav"],
        Ended("failed", "INVALID", "silent.wav contains no audio samples"),
    ),
    "a file that was not sent": (
        {"request": "Read the text in photo.png"},
        [],
        Ended("failed", "CLARIFY", "photo.png is named but was not sent"),
    ),
    "another file than the one named": (
        {"request": "Read the text in photo.png"},
        ["sign.png"],
        Ended("failed", "CLARIFY", "photo.png is named but was not sent (what was sent is sign.png)"),
    ),
    "a request for a task that no expert offers": (
        {"request": "Make a video of a dancing cat"},
        [],
        Ended("failed", "UNPLANNABLE", "text-to-video, which no expert here offers"),
    ),
    "a plan with a task that no expert offers": (
        plan({"id": 1, "task": "cake-baking", "args": {}}),
        [],
        Refused(BAD, "PLAN", "no expert offers the task cake-baking"),
    ),
    "a model that no expert has": (
        plan(speech(model="nobody/has-it")),
        [],
        Ended("failed", "MODEL", "no expert offers model nobody/has-it"),
    ),
    "a cycle": (
        plan(summary(1, text=output(2)), summary(2, text=output(1))),
        [],
        Refused(BAD, "PLAN", "it waits for task 2, which waits for it in turn"),
    ),
    "a reference forward": (
        plan(speech(1, text=output(2)), summary(2)),
        [],
        Refused(BAD, "PLAN", "it refers to task 2, which comes after it"),
    ),
    "a reference to nothing": (
        plan(speech(text=output(9))),
        [],
        Refused(BAD, "PLAN", "port text refers to task 9, which is not there"),
    ),
    "an output that is not there": (
        plan(summary(1), speech(2, text=output(1, "words"))),
        [],
        Refused(BAD, "PLAN", "task 1 (summarization) has no output words"),
    ),
    "two tasks with one id": (
        plan(speech(1), speech(1)),
        [],
        Refused(BAD, "PLAN", "its id is given twice"),
    ),
    "an unknown port": (
        plan({"id": 1, "task": "summarization", "args": {"text": "hello", "pitch": "high"}}),
        [],
        Refused(BAD, "PLAN", "summarization has no input port pitch"),
    ),
    "a missing port": (
        plan({"id": 1, "task": "summarization", "args": {}}),
        [],
        Refused(BAD, "PLAN", "the required port text of summarization is missing"),
    ),
    "an unknown input": (
        plan(speech(text={"input": "file2"})),
        ["sign.png"],
        Refused(BAD, "PLAN", "there is no input file2"),
    ),
    "a picture where text belongs": (
        plan(speech(text={"input": "file1"})),
        ["sign.png"],
        Refused(BAD, "PLAN", "port text takes a text, but input file1 is picture"),
    ),
    "an unknown parameter": (
        plan(speech(parameters={"pitch": 2})),
        [],
        Refused(BAD, "PLAN", "text-to-speech has no parameter pitch"),
    ),
    "a parameter out of range": (
        plan(speech(parameters={"speed": 20})),
        [],
        Refused(BAD, "PLAN", "parameter speed: 20 is greater than the maximum of 2"),
    ),
    "an artifact that is not there": (
        {"request": "x", "inputs": [{"artifact": {"sha256": SHA}}]},
        [],
        Refused(MISSING, "ARTIFACT", SHA),
    ),
    "an artifact that cannot be": (
        {"request": "x", "inputs": [{"artifact": {"sha256": "../../etc/passwd"}}]},
        [],
        Refused(BAD, "INVALID", "64 lower-case hexadecimal digits"),
    ),
    "a run to follow that is not there": (
        {"request": "x", "parent_run_id": "run_9"},
        [],
        Refused(MISSING, "RUN", "there is no run run_9"),
    ),
}


@pytest.fixture(params=["http", "grpc"])
def endpoint(request: pytest.FixtureRequest, http: httpx.AsyncClient, channel: grpc.aio.Channel) -> Endpoint:
    return HttpEndpoint(http) if request.param == "http" else GrpcEndpoint(channel)


@pytest.fixture(scope="module", autouse=True)
def before(local_stack: LocalStack) -> frozenset[int]:
    """Process ids of the services before the first test."""
    return local_stack.child_pids()


@pytest.mark.parametrize(("spec", "files", "expected"), CASES.values(), ids=CASES)
async def test_http_and_grpc_report_the_same_error(
    endpoint: Endpoint, spec: Spec, files: Sequence[str], expected: Refused | Ended
) -> None:
    outcome = await endpoint.create_run(spec, {name: FILES[name] for name in files})
    if isinstance(expected, Refused):
        assert isinstance(outcome, ApiError), outcome
        assert outcome.status in expected.status
        assert outcome.code == expected.code
        assert expected.message in outcome.detail
        assert outcome.remedy
    else:
        assert not isinstance(outcome, ApiError), outcome
        check_end(outcome, expected)


def check_end(run: Run, expected: Ended) -> None:
    """The run reports the cause, and its answer lists only completed tasks as done."""
    assert run["state"] == expected.state
    assert run["failure"]["reason"] == expected.code
    assert expected.message in run["failure"]["message"]
    assert expected.message in run["answer"]
    assert run["failure"]["remedy"]
    done = [task for task in run["tasks"] if task["state"] in {"succeeded", "reused"}]
    assert len(done) == expected.done
    assert all(task["result"]["failure"]["remedy"] for task in run["tasks"] if task["state"] == "failed")
    assert bool(expected.done) == ("How it was done" in run["answer"])


async def test_services_are_ready_after_bad_input(
    local_stack: LocalStack, http: httpx.AsyncClient, endpoint: Endpoint, before: frozenset[int]
) -> None:
    assert (await http.get("/readyz")).status_code == 200
    outcome = await endpoint.create_run(READ, {"sign.png": FILES["sign.png"]})
    assert not isinstance(outcome, ApiError)
    assert outcome["state"] == "completed"
    assert "We are so happy" in outcome["answer"]
    assert local_stack.child_pids() == before
    assert '"unexpected error"' not in local_stack.log.read_text()
